"""What every kind can do: create, read, list, watch, update, patch and delete; it knows none of them."""
