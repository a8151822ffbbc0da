"""The errors that a user can cause, as a tree.

SlotwiseError
 ├─ InputError        bad input at a door: a file, an argument, a program name (exit code 2)
 ├─ InputChanged      an input file is not the one that was planned with (its task fails)
 └─ MissingExtraError a part that an optional install brings is not there (exit code 2)
"""


class SlotwiseError(Exception):
    """Whatever a user can cause and mend; the message names place, value and remedy."""


class InputError(SlotwiseError):
    """Input that cannot be accepted; nothing was begun."""


class InputChanged(SlotwiseError):
    """A file of input is no longer as it was when its job was planned."""


class MissingExtraError(SlotwiseError):
    """An optional part is needed and not installed."""

    def __init__(self, wanted_for: str, extra: str) -> None:
        super().__init__(
            f"{wanted_for} needs an optional part: pip install 'slotwise[{extra}]'"
        )
