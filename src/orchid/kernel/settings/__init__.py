"""The settings: as given, as read, and as validated."""
