"""The runtime of controllers: watch loop, work queue and leader election."""
