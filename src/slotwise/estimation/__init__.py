"""Estimates of the work of tasks and the speeds of hosts."""
