"""What is raised when a setting cannot be used."""


class BadSettings(ValueError):
    """A setting that cannot be used; the text says which and why."""


class NotAvailable(BadSettings):
    """What a setting names is not there now; trying again may help."""
