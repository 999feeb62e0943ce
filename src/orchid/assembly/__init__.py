"""Construction of a server: server.py lists all parts."""
