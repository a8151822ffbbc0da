"""The simulated backend."""

from __future__ import annotations
