"""Generic verbs of all kinds, from create to delete; it knows none of the kinds."""
