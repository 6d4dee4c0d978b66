"""The version of brio."""

__version__ = "0.1.0"
