"""HTTP: the path of a request, from the socket to the response."""
