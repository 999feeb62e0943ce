"""The language of approval policies: judges requests without input or output.

Start with feature.py.
"""
