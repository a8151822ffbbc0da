"""Experiments: what one command repeats."""
