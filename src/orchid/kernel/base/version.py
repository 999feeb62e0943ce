"""The version of this release, in the one place that the build and the server both read."""

__version__ = "1.0.0"
