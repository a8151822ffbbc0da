"""The local backend: runs tasks in worker processes of this machine."""

from __future__ import annotations
