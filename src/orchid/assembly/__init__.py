"""The one place where things are built and joined: server.py lists what exists."""
