"""What every call to another server needs: kubeconfig files, and TLS settings."""
