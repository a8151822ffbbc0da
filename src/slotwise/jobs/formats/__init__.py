"""Reading splits of input and writing parts of output."""

from __future__ import annotations
