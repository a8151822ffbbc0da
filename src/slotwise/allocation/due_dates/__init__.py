"""Due dates: which can be kept together, and the slots that keep them."""
