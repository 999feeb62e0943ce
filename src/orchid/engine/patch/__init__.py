"""The four ways to change an object by a patch, and the record of who owns which field."""
