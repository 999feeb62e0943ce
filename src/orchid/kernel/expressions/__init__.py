"""CEL expressions: compiled once, evaluated with limits."""
