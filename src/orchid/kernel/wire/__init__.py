"""API types, errors, names and selectors, and the codec from and to bytes."""
