"""The version of slotwise."""

__version__ = "0.1.0"
