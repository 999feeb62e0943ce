"""A server of HTTP/1.1: sockets, TLS, requests in and responses out. It knows no API."""
