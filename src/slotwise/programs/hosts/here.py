"""What the agent of a host tells its worker processes by their environment."""

from __future__ import annotations

import json
import os
import ssl
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from slotwise.programs.hosts.greeting import Security

FOLDER_VARIABLE = "SLOTWISE_FOLDER"
"""The folder for the files of jobs on this host. Without it all hosts see the same files."""

ADDRESS_VARIABLE = "SLOTWISE_ADDRESS"
"""Where the agent of this host serves these files: "10.0.0.3:41234"."""

SECURITY_VARIABLE = "SLOTWISE_SECURITY"
"""What a task needs to fetch files from other agents, in JSON: "token" or "tls"."""


def folder_here(work_dir: str) -> Path:
    """The folder of a job's intermediate files on this host.

    `work_dir` is the folder on the host of the manager. Only the last part of it is the same.
    """
    here = os.environ.get(FOLDER_VARIABLE)
    return Path(work_dir) if here is None else Path(here) / Path(work_dir).name


def address_here() -> str:
    """The address of the agent of this host; empty if there is none."""
    return os.environ.get(ADDRESS_VARIABLE, "")


@cache
def reader_security() -> Security:
    """What this host's agent has given to fetch files from others."""
    given = json.loads(os.environ[SECURITY_VARIABLE])
    if given.get("tls"):
        return tls_context(given["tls"], ssl.Purpose.SERVER_AUTH)
    return bytes.fromhex(given["token"])


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


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
