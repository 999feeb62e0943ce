"""What the server can do: a folder for each feature. Start with assembly/features.py."""
