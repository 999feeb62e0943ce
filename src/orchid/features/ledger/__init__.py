"""The ledger: an append-only log in the store of issued, decided and revoked credentials."""
