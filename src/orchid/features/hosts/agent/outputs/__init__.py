"""The contents of outputs: certificates, tokens, bundles and kubeconfigs, one file each."""
