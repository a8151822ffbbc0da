"""The simulated world."""
