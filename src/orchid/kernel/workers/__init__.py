"""Several API processes over one store: the parent that owns it, and its link to the workers."""
