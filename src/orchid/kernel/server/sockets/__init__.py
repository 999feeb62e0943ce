"""Sockets, TLS and HTTP/1.1: the only modules that know connections."""
