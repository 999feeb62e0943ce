"""Calls to other servers: kubeconfig files, TLS settings, the HTTPS client."""
