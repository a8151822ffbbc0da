"""Formats: read splits of input, and write parts of output."""

from __future__ import annotations
