"""Requests and responses of the pages, and the listener of a user's own machine."""
