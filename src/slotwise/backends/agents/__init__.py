"""The backend for other hosts: an agent on each host runs worker processes for a manager."""

from __future__ import annotations
