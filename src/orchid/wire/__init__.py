"""What travels: objects, errors, names and selectors, and the codec from and to bytes."""
