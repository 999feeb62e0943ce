"""CertificateAuthorities: who may declare one, with which key, and what depends on it."""
