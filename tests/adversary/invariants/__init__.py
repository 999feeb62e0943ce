"""What must hold whatever anybody does, checked from outside with code of its own."""
