"""Transparency logs in the formats of RFC 6962 and C2SP: hashes, tiles, signed notes and proofs."""
