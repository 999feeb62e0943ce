"""What every call to another server needs: kubeconfig files, TLS settings, the HTTPS client."""
