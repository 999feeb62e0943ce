"""Shared by commands: the connection to the server, and output."""
