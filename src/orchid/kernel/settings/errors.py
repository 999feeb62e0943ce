"""Exceptions for invalid settings."""


class BadSettings(ValueError):
    """An invalid setting; the message has its name and the reason."""


class NotAvailable(BadSettings):
    """A resource that a setting names is not available now; a retry may help."""
