"""What every kind can do, from create to delete; it knows none of the kinds."""
