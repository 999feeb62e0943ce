"""Notices: signed events for people who decide, sent to one receiver over HTTPS."""
