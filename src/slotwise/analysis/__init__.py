"""What it means: all computed from a log."""
