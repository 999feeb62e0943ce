"""Pages for programs."""
