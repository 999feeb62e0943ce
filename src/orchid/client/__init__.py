"""Speak to a server as its users do: typed verbs and watches, over TLS or in the same process."""
