"""What the agent of a host tells its worker processes by their environment."""

from __future__ import annotations

import os
import re
from pathlib import Path

from slotwise.programs.addresses import split_address

FOLDER_VARIABLE = "SLOTWISE_FOLDER"
"""The folder for the files of jobs on this host. Without it all hosts see the same files."""

ADDRESS_VARIABLE = "SLOTWISE_ADDRESS"
"""Where the agent of this host serves these files: "10.0.0.3:41234"."""

NAME_VARIABLE = "SLOTWISE_HOST"
"""The name of this host."""

SECURITY_VARIABLE = "SLOTWISE_SECURITY"
"""What a task needs to fetch files from other agents, in JSON: "token" or "tls"."""


def shares_files() -> bool:
    """Whether all hosts see the files that tasks here write to local folders."""
    return FOLDER_VARIABLE not in os.environ


def folder_here(work_dir: str) -> Path:
    """The folder of a job's intermediate files on this host.

    `work_dir` is the folder on the host of the manager. Only the last part of it is the same.
    """
    here = os.environ.get(FOLDER_VARIABLE)
    return Path(work_dir) if here is None else Path(here) / Path(work_dir).name


def address_here() -> str:
    """The address of the agent of this host; empty if there is none."""
    return os.environ.get(ADDRESS_VARIABLE, "")


def host_here() -> str:
    """The address under which other hosts reach this one; that of loopback without an agent."""
    address = address_here()
    return split_address(address)[0] if address else "127.0.0.1"


def is_local(address: str) -> bool:
    """Whether files that are served at an address are files on this host."""
    return address in ("", address_here())


_LACKS_MODULE = re.compile(r"ModuleNotFoundError: No module named '(\w+)")


def lacking(error: str, host: str) -> str:
    """The remedy if an error, as text, says that a host lacks a module; else empty."""
    found = _LACKS_MODULE.match(error)
    if found is None:
        return ""
    return (
        f"install {found[1]} on host {host}, in the environment of its Dask worker, or put its"
        " file where all hosts see it and on the sys.path of the program that began the run"
    )
