"""What exists, and what happened: values, the state, the loop and the log."""
