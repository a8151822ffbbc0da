"""Solving: orders of priority, what search makes of them, the best of all, branch and bound."""
