"""Clocks, log lines, metrics, limits by key, shared waits: what everything else uses."""
