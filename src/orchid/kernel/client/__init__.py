"""The API client: typed verbs and watches, over TLS or in the same process."""
