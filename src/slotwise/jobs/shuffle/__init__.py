"""The shuffle from map to reduce: partition, combine and sort pairs in bounded memory."""

from __future__ import annotations
