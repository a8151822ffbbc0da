"""Whole tasks on machines of different speeds: DMRS, its lower bound and other schedulers."""

from __future__ import annotations
