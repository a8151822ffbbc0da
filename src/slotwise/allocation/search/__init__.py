"""Solving: orders of priority, what search makes of them, and branch and bound."""
