"""Files of jobs on the hosts that wrote them, and access to them from other hosts."""

from __future__ import annotations
