"""CAs of the platform in files, and the conditions of authorities."""
