"""The simulated backend."""
