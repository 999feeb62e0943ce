"""Certificate requests, their approval, and the records of issued certificates."""
