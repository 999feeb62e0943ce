"""Rules that look beyond one object; one policy per file."""
