"""The discovery documents of groups, versions and resources."""
