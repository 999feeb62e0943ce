"""One file per kind: its fields, rules, endpoints and columns; the rules are pure."""
