"""Pages: everything that the server answers and that is no resource, by its path."""
