"""Commands for clients: kubeconfigs, exec credentials, shell completion."""
