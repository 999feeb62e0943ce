"""Pages for people in a browser, on a user's machine or on the server. Start with feature.py."""
