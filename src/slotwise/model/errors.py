"""The errors that a user can cause, as a tree.

SlotwiseError
 ├─ InputError        invalid input: a file, an argument, a program name (exit code 2)
 ├─ InputChanged      an input file changed since the job was planned (its task fails)
 └─ MissingExtraError an optional dependency is not installed (exit code 2)
"""


class SlotwiseError(Exception):
    """An error that a user can cause and fix; the message names place, value and remedy."""


class InputError(SlotwiseError):
    """Invalid input; nothing was started."""


class InputChanged(SlotwiseError):
    """An input file changed since its job was planned."""


class MissingExtraError(SlotwiseError):
    """An optional dependency is needed and not installed."""

    def __init__(self, wanted_for: str, extra: str) -> None:
        super().__init__(
            f"{wanted_for} needs an optional part: pip install 'slotwise[{extra}]'"
        )
