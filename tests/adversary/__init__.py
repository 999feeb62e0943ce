"""Users with partial rights, a thief and hostile servers against Orchid, and invariants outside."""
