"""slotwise shares a cluster among MapReduce jobs and prints a proven bound beside every result."""

__version__ = "0.1.0"
