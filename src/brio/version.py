"""The version of brio."""

__version__ = "0.2.0"
