"""Sessions: a running scheduler that accepts jobs at any time, its futures and executors."""
