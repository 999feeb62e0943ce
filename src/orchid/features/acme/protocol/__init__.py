"""The protocol of ACME (RFC 8555): signed requests, nonces, URLs, problem documents, bindings."""
