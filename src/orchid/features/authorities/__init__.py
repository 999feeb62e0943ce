"""Certificate authorities for custom signers: keys, chains, rotation. Start with feature.py."""
