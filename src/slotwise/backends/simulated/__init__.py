"""The simulated backend: a cluster with true speeds and durations, faults and a network."""

from __future__ import annotations
