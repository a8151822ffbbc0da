"""What it costs not to know sizes: schedulers that know them, do not, or know wrong ones."""
