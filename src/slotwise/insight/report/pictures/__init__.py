"""The pictures of a report: each module draws one. They need the extra `plots`."""

from __future__ import annotations
