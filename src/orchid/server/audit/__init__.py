"""The audit record: what is recorded of a request, by which policy, and where it goes."""
