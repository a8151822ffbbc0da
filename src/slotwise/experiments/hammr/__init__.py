"""The figures of Hammr."""
