"""The version of this release, in the one place that the build and the server both read."""

__version__ = "0.1.0"
