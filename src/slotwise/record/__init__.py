"""What happened: one log for every world."""
