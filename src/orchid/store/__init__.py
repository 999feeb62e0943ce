"""The store: an ordered map that remembers its past; start with `interface.py`."""
