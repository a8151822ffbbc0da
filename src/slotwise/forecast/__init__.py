"""When jobs will start and end: ranges, from simulations of the present state."""
