"""The runtime: the backend protocol, the state, and the loop."""
