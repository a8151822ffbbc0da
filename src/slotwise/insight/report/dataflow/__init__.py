"""The graph of a dataflow job as text, as JSON and as a picture."""

from __future__ import annotations
