"""The store: an ordered map with a history; start with `interface.py`."""
