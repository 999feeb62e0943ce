"""The Pod, and the parts that only a Pod has: volumes, containers, references to other objects."""
