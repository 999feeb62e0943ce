"""What a revocation leads to: its rights, marks in the inventory, revocation lists.

Start with feature.py.
"""
