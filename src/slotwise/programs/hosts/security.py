"""Certificates and tokens, from what is given by configuration or by an agent."""

from __future__ import annotations

import json
import os
import ssl
import tempfile
from collections.abc import Mapping
from functools import cache
from typing import Any

from slotwise.programs.hosts.greeting import Security
from slotwise.programs.hosts.here import SECURITY_VARIABLE


@cache
def reader_security() -> Security:
    """What this host's agent has given to fetch files from others."""
    tls = tls_here(ssl.Purpose.SERVER_AUTH)
    return bytes.fromhex(_given()["token"]) if tls is None else tls


@cache
def tls_here(purpose: ssl.Purpose) -> ssl.SSLContext | None:
    """The context of tasks on this host for connections to others, or from others.

    None if the agent has given none: the cluster has no TLS.
    """
    given = _given().get("tls")
    return tls_context(given, purpose) if given else None


def tls_context(given: Mapping[str, str], purpose: ssl.Purpose) -> ssl.SSLContext:
    """A context that shows this certificate, and demands one of the same authority.

    given  "ca_file", "cert" and "key": paths, or the texts of the files
    """
    with tempfile.TemporaryDirectory() as folder:
        paths = {}
        for name, value in given.items():
            paths[name] = value
            if "\n" in value:
                paths[name] = os.path.join(folder, name)
                with open(paths[name], "w", opener=_private) as file:
                    file.write(value)
        context = ssl.create_default_context(purpose, cafile=paths["ca_file"])
        context.check_hostname = False  # Certificates of Dask name no hosts.
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(paths["cert"], paths["key"])
    return context


def _given() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(os.environ[SECURITY_VARIABLE])
    return found


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
