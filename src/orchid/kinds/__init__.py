"""One file per kind: its fields, its rules, its endpoints and columns; the rules are pure."""
