"""Due dates: whether they can be kept together, and the slots that keep them."""
