"""The program `orchid agent`: its loop, schedule, status, and messages to other programs."""
