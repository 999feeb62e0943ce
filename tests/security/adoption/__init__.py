"""What could pass to the next owner of a name: references of kinds, and scenarios."""
