"""The whole server in one process: every step of a request but the socket."""
