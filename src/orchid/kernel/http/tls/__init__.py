"""TLS: the certificate files of a listener, and the channel of one connection."""
