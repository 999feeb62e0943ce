"""Bytes to objects and back: JSON, YAML and protobuf, with strict field validation."""
