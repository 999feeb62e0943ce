"""The four patch formats, and field ownership."""
