"""Solving: priority orders, local search, exhaustive search, branch and bound."""
