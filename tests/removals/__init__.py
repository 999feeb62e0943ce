"""What a right or a credential rests on is taken away, and the very next request is refused."""
