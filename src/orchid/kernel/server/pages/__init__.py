"""Pages: everything that the server serves and that is no resource, by its path."""
