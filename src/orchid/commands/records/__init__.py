"""Commands for backup, restore, migration, encryption at rest and the ledger."""
