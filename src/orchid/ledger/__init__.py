"""The ledger: an append-only log, kept in the store, of what was issued, decided and revoked."""
