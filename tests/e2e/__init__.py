"""The installed program: real processes, TLS, restarts."""
