"""Installed programs; each module is imported on first use."""

from __future__ import annotations
