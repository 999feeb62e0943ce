"""Certificate authorities: their keys, chains, limits and profiles."""
