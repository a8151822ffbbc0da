"""Where MooseFS keeps the chunks of a file, as its tool mfsfileinfo prints it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable

from slotwise.model.errors import InputError
from slotwise.programs.locations.block import Blocks, FileBlock

COMMAND = "mfsfileinfo"
CHUNK_BYTES = 64 << 20
"""Each chunk of a file but the last has this size."""

SECONDS = 30.0

CHUNK = re.compile(r"\s+chunk (\d+):")
COPY = re.compile(r"\s+copy \d+: (\S+?):\w+(?P<rest>.*)")
VALID = re.compile(r"status:\s*VALID\b")


def locate(path: str) -> Blocks:
    """The chunks of a file that have valid copies. InputError if they are not known."""
    try:
        done = subprocess.run(
            [COMMAND, path],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SECONDS,
            check=False,
        )
    except OSError as error:
        raise InputError(
            f"input_hosts: {COMMAND} cannot be run ({error.strerror}); install the client of"
            " MooseFS on this machine (moosefs-client), or leave out input_hosts"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise InputError(
            f"input_hosts: {COMMAND} has not answered for {SECONDS:g} s; is the master of"
            " MooseFS there? Or leave out input_hosts"
        ) from error
    if done.returncode != 0 or (CHUNK.search(done.stdout) is None and done.stderr):
        says = (done.stderr or done.stdout).strip().splitlines()
        raise InputError(
            f"input_hosts: {COMMAND} {path!r}: {says[-1] if says else done.returncode}; give"
            " files on MooseFS, or leave out input_hosts"
        )
    return parse(done.stdout.splitlines())


def parse(lines: Iterable[str]) -> Blocks:
    """The chunks that mfsfileinfo has printed for one file.

    Versions before 3 print no status. Parts of chunks (erasure coding) are left out: a host
    with one of them has to read the others, too.
    """
    hosts: dict[int, set[str]] = {}
    number = 0
    for line in lines:
        if found := CHUNK.match(line):
            number = int(found[1])
        elif (found := COPY.match(line)) and (
            "status:" not in found["rest"] or VALID.search(found["rest"])
        ):
            hosts.setdefault(number, set()).add(found[1])
    return [
        FileBlock(number * CHUNK_BYTES, CHUNK_BYTES, frozenset(held))
        for number, held in sorted(hosts.items())
    ]
