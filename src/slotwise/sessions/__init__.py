"""A running scheduler that accepts jobs at any time, its futures and its executors."""
