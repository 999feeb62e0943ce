"""The checks of `orchid doctor` and their findings."""
