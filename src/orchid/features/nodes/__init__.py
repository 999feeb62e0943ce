"""What a node may do, and certificates for the Pods on it. Start with feature.py."""
