"""The settings: as they are given, as they are read, and as they are checked."""
