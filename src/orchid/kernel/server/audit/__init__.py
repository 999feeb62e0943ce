"""The audit log: policy, events, redaction and file."""
