"""Token keys that are files."""
