"""Solving: priority orders, local search, exhaustive search, branch and bound."""

from __future__ import annotations
