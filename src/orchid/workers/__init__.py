"""Several API processes over one store: a parent that owns it, and what ties the workers to it."""
