"""Answers of the server that are JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response


class PlainResponse(Response):
    """Plain values as JSON, also text that is not Unicode, as in the environment of a job."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """ASCII only."""
        return json.dumps(content, separators=(",", ":")).encode()


def refusal(
    status: int,
    kind: str,
    message: str,
    headers: Mapping[str, str] | None = None,
    **more: Any,
) -> PlainResponse:
    """An error as JSON, with further values."""
    error = {"kind": kind, "message": message, **more}
    return PlainResponse({"error": error}, status, headers)
