"""HTTP: the way of a request, from the socket to the answer."""
