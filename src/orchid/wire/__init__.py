"""What travels: objects, errors, names and selectors as values, and the codec between bytes and objects."""
