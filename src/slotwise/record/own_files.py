"""Which files slotwise may write over: those that it has written itself."""

from __future__ import annotations

from pathlib import Path

from slotwise.model.errors import InputError


def refuse_foreign(path: str | Path, mark: bytes, place: str) -> None:
    """Raise InputError if a file is there that is not empty and does not begin with our mark.

    Also if it cannot be read. `place` names the file in the message. Devices and pipes hold
    nothing that could be lost.
    """
    path, head = Path(path), b""
    try:
        if path.is_file():
            with path.open("rb") as file:
                head = file.read(len(mark))
    except OSError as error:
        raise InputError(f"{place}: {error.strerror}; name another file") from error
    if head and head != mark:
        raise InputError(
            f"{place} exists and was not written by slotwise; name another file, or remove it"
        )
