"""What every controller runs on: the watch loop, its queue, and leader election."""
