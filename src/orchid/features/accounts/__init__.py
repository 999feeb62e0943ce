"""Service accounts and their tokens: issued, reviewed, bound to objects. Start with feature.py."""
