"""Commands that start, set up and examine a server."""
