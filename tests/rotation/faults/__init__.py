"""Rotations of every sort of key while servers are killed after each write."""
