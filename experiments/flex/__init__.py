"""The figures of FLEX: simulations, and jobs on a cluster."""
