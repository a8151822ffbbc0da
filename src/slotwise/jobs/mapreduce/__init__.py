"""MapReduce jobs: the program of a user, its plan, its tasks and its execution."""

from __future__ import annotations
