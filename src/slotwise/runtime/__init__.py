"""Making it happen: the world protocol, the state, the one loop."""
