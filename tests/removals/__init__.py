"""Removals of a right or a credential: the very next request is refused."""
