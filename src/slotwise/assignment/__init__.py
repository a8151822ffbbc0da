"""Which task where."""
