"""Which files slotwise may write over: those that it has written itself."""

from __future__ import annotations

from pathlib import Path

from slotwise.model.errors import InputError


def refuse_foreign(path: str | Path, mark: bytes, place: str) -> None:
    """Raise InputError if a file is there that is not empty and does not begin with our mark.

    `place` names the file in the message. Devices and pipes hold nothing that could be lost.
    OSError where the file cannot be read.
    """
    path = Path(path)
    if not path.is_file():
        return
    with path.open("rb") as file:
        head = file.read(len(mark))
    if head and head != mark:
        raise InputError(
            f"{place} exists and was not written by slotwise; name another file, or remove it"
        )
