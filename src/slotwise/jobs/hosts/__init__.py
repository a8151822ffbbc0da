"""Files of jobs on the hosts that wrote them, and how tasks on other hosts get them."""

from __future__ import annotations
