"""Rules that need more than one object; one policy per file."""
