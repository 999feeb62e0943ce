"""Commands for service accounts, their tokens and keys."""
