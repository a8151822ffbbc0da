"""The backend for this machine, whose tasks run in worker processes."""

from __future__ import annotations
