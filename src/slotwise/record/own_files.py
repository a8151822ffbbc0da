"""Which files slotwise may write over: those that it has written itself."""

from __future__ import annotations

from pathlib import Path

from slotwise.model.errors import InputError

HEAD_BYTES = 1000
"""The mark of a file of ours stands within these."""


def refuse_foreign(path: str | Path, mark: bytes, place: str) -> None:
    """Raise InputError if a file is there that is not empty and does not have our mark.

    `place` names the file in the message. Devices and pipes hold nothing that could be lost.
    OSError where the file cannot be read.
    """
    path = Path(path)
    if not path.is_file():
        return
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    if head and mark not in head:
        raise InputError(
            f"{place} exists and was not written by slotwise; name another file, or remove it"
        )
