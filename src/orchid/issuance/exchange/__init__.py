"""Exchange of tokens of other issuers for tokens of accounts (RFC 8693)."""
