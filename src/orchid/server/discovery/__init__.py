"""What the server serves: the discovery documents of groups, versions and resources."""
