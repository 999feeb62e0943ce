"""Published bundles over HTTPS, below /trust/: trust anchors for any client."""
