"""The service: one scheduler for all terminals, scripts and notebooks of a machine."""
