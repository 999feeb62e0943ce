"""The agent of a host: credentials in files that are never half written. Only the writer exists."""
