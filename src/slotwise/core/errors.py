"""The errors that a user can cause, as a tree.

SlotwiseError
 ├─ InputError        invalid input: a file, an argument, a program name (exit code 2)
 ├─ RecordError       what a node of a dataflow wrote is not a record (its task fails)
 ├─ OutputError       a part of the output cannot be written (its task fails)
 ├─ WorkFolderError   intermediate files cannot be written or read (their task fails)
 ├─ NotRetriedError   a command ended with an exit code that is not retried (its job fails)
 ├─ InputChanged      an input file changed since the job was planned (its job fails)
 │   └─ InputDiffers  it is not the same on one host (its task fails)
 ├─ HostsLostError    all hosts of a run have gone, and no others can join (exit code 1)
 └─ MissingExtraError an optional dependency is not installed (exit code 2)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from math import inf
from numbers import Integral, Real
from types import MappingProxyType
from typing import Annotated, Any, get_args, get_type_hints


class SlotwiseWarning(UserWarning):
    """What a user should know and may correct, although nothing has failed."""


class SlotwiseError(Exception):
    """An error that a user can cause and fix; the message names place, value and remedy."""

    exit_code = 2
    """The exit code of the command that raises it."""


class InputError(SlotwiseError):
    """Invalid input; nothing was started."""


class PromiseRefused(InputError):
    """A date cannot be promised to a job, which was not accepted.

    earliest  the earliest date that could be promised, in Unix seconds; None if none could
    """

    def __init__(self, text: str, earliest: float | None) -> None:
        super().__init__(text)
        self.earliest = earliest


class RecordError(SlotwiseError, TypeError):
    """A node wrote something that is not a record, or has an invalid key; names the node."""


class NotRetriedError(SlotwiseError):
    """A command ended with one of the exit codes that its job states in `no_retry`."""


class InputChanged(SlotwiseError):
    """An input file changed since its job was planned: no further attempt can succeed."""


class InputDiffers(InputChanged):
    """An input file is not the same on one host; it may be right on another one."""


class HostsLostError(SlotwiseError):
    """All hosts have left, and no others can join: what has begun cannot continue."""


class SessionFailedError(SlotwiseError):
    """The loop of a session has ended by an error, which says nothing about its jobs."""


class OutputError(SlotwiseError):
    """A part of the output cannot be written where its task runs."""

    @classmethod
    def of(cls, path: str, error: OSError) -> OutputError:
        """The error for a file of the output, with the remedy."""
        return cls(
            f"its output cannot be written to {path}: {error.strerror or error}; check that its"
            " folder exists, on each host of a cluster, that it may be written to and is not"
            " full, and that nothing removes it while the job runs"
        )


class WorkFolderError(SlotwiseError):
    """The intermediate files of a task cannot be written or read where it runs."""

    @classmethod
    def of(cls, folder: str, error: OSError) -> WorkFolderError:
        """The error for a folder of intermediate files, with the remedy."""
        return cls(
            f"its intermediate files cannot be kept in {folder}: {error.strerror or error};"
            " check that this folder exists, that it can be written to and is not full, and"
            " that nothing removes it while the job runs; TMPDIR, or --local-directory of a"
            " Dask worker, names another"
        )


class MissingExtraError(SlotwiseError):
    """An optional dependency is needed and not installed, or cannot be imported (`missing`)."""

    def __init__(self, wanted_for: str, extra: str, missing: ImportError | None = None) -> None:
        reason = "" if missing is None else f" ({missing})"
        super().__init__(
            f"{wanted_for} needs an optional part{reason}: pip install 'slotwise[{extra}]', or"
            " scripts/setup in a checkout"
        )


def check_installed(module: str, wanted_for: str, extra: str) -> None:
    """Raise MissingExtraError, naming what needs it, if the module of an extra is missing."""
    if find_spec(module) is None:
        raise MissingExtraError(wanted_for, extra)


# The names of options in messages, as the user has written them.

SHORTER = {"attempts_max": "attempts", "epoch_seconds": "epoch"}
"""Options that have a shorter name on the command line."""

_is_command: ContextVar[bool] = ContextVar("is_command", default=False)


def option_name(name: str) -> str:
    """An option as the caller writes it: `dask_slots`, or `--dask-slots` in a command."""
    if not _is_command.get():
        return name
    return f"--{SHORTER.get(name, name).replace('_', '-')}"


@contextmanager
def as_in_commands() -> Iterator[None]:
    """Write options as on the command line."""
    token = _is_command.set(True)
    try:
        yield
    finally:
        _is_command.reset(token)


# Whether a value that a user gives has the right type; other code checks its range.

NUMBER = (int, float, Real)
"""The types of numbers; those of NumPy are among them."""

WHOLE = (int, Integral)
"""The types of whole numbers."""

MAX_SECONDS = 1e100
"""The longest time of a task: sums and products of such numbers do not overflow."""

MAX_TIME = 1e10
"""Seconds, about 300 years; floats would be too coarse for later instants."""

MAX_NUMBER = 1e12
"""The maximum of weights, speeds and costs: sums of many stay finite and precise enough."""

MIN_NUMBER = 1e-12
"""The minimum of positive numbers; smaller ones are lost in sums."""

MAX_EXIT_CODE = 255
"""The largest exit code of a process."""

MAX_FLOAT = 1.7e308
"""The largest float, about; an integer may be larger."""

MAX_WHOLE = 10**12
"""The maximum of a count; a larger one is taken for a typing error."""

MAX_SHOWN = 80
"""The maximum number of characters of a value that a message shows."""


def is_number(value: object) -> bool:
    """Whether it is a number; True and False are none."""
    return isinstance(value, NUMBER) and not isinstance(value, bool)


def is_whole(value: object) -> bool:
    """Whether it is a whole number; True and False are none."""
    return isinstance(value, WHOLE) and not isinstance(value, bool)


def check_range(
    what: str, value: object, least: float, most: float, remedy: str, whole: bool = False
) -> None:
    """InputError unless it is a number, or a whole number, from `least` to `most`.

    A number that is an integer may have any number of digits.
    """
    is_right = is_whole(value) if whole else is_number(value)
    if not is_right or not least <= value <= most:  # type: ignore[operator]
        raise InputError(f"{what} is {shown(value)}; {remedy}")


# Limits that the annotation of a field states once, for Python and for workload files.


@dataclass(frozen=True, slots=True)
class Limits:
    """The least and the most that a field may be, and the remedy for another value.

    whole        only whole numbers
    or_infinite  infinity, too, in Python
    """

    least: float
    most: float
    remedy: str
    whole: bool = False
    or_infinite: bool = False

    def admit(self, value: Any) -> bool:
        """Whether the value is within the limits. An integer may have any number of digits."""
        if not isinstance(value, WHOLE if self.whole else NUMBER) or isinstance(value, bool):
            return False
        number: Any = value  # Type checks know no order of numbers.Real.
        return self.least <= number <= self.most or (self.or_infinite and number == inf)

    def check(self, what: str, value: object) -> None:
        """InputError for a value outside the limits."""
        if not self.admit(value):
            raise InputError(f"{what} is {shown(value)}; {self.remedy}")

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """The schema of the type with these limits; JSON schemas show them, too."""
        schema = handler(source)
        if self.least != MIN_NUMBER:
            return schema | {"ge": self.least, "le": self.most}
        # A plain dictionary, because the core must not import pydantic.
        return {
            "type": "function-after",
            "function": {"type": "no-info", "function": self._not_minute},
            "schema": schema | {"gt": 0, "le": self.most},
        }

    def _not_minute(self, value: float) -> float:
        if value < self.least:
            raise ValueError(f"expected a number >= {self.least}")
        return value


TIME = Limits(0, MAX_TIME, f"give seconds >= 0, at most {MAX_TIME:g}")
"""Seconds that instants can be as large as."""

POSITIVE = Limits(
    MIN_NUMBER, MAX_NUMBER, f"give a number > 0, from {MIN_NUMBER:g} to {MAX_NUMBER:g}"
)
"""A positive number whose sums and products do not overflow."""

Seconds = Annotated[float, TIME]
Positive = Annotated[float, POSITIVE]
Part = Annotated[float, Limits(0, 1, "give a part from 0 to 1")]


@cache
def _limits_of(cls: Any) -> tuple[tuple[str, Any, Limits, bool], ...]:
    """The fields with limits, the usual type of each, and whether it may be None."""
    found = []
    for name, hint in get_type_hints(cls, include_extras=True).items():
        kinds = get_args(hint) if type(None) in get_args(hint) else (hint,)
        for limits in getattr(kinds[0], "__metadata__", ()):
            if isinstance(limits, Limits):
                usual = int if limits.whole else float
                found.append((name, usual, limits, len(kinds) > 1))
    return tuple(found)


def check_limits(what: str, value: Any) -> None:
    """InputError if a field of a dataclass is outside the limits of its annotation."""
    for name, usual, limits, is_optional in _limits_of(value.__class__):
        given: Any = getattr(value, name)
        if given.__class__ is usual and limits.least <= given <= limits.most:
            continue  # The usual case: fast.
        if not (is_optional and given is None) and not limits.admit(given):
            raise InputError(f"{what}: {name} is {shown(given)}; {limits.remedy}")


check_positive, check_time = POSITIVE.check, TIME.check


# Suggestions for names that are misspelled.

LIKENESS = 0.66
"""The least similarity of a name that is suggested, from 0 to 1, as `difflib` measures it."""

MIN_BEGINNING = 3
"""The least number of characters of a beginning that stands for the name."""


def suggestion(
    wrong: object,
    known: Iterable[str],
    otherwise: str = "",
    meant: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """The remedy for an unknown name: the known one that was probably meant.

    It is the one that `meant` has for words of other tools, a similar one, or the only one with
    this beginning. Without such a name, all known names, or what `otherwise` says.
    """
    from difflib import get_close_matches  # Most commands need none.

    names = list(dict.fromkeys(known))
    text = wrong[:NAME_LENGTH] if isinstance(wrong, str) else ""
    if (other := meant.get(text)) in names:
        return f"did you mean {other!r}?"
    text, by_text = _compared(text), {_compared(name): name for name in names}
    close = get_close_matches(text, by_text, n=1, cutoff=LIKENESS)
    longer = [name for name in by_text if len(text) >= MIN_BEGINNING and name.startswith(text)]
    if close or len(longer) == 1:
        return f"did you mean {by_text[[*close, *longer][0]]!r}?"
    return otherwise or f"known: {', '.join(names) or 'none'}"


def _compared(name: str) -> str:
    """What is compared of a name or an option, without regard to case."""
    return name.lower().lstrip("-")


def shown(value: object) -> str:
    """A value as messages show it: in Python's notation, its first characters at least."""
    try:
        text = repr(value)
    except Exception as error:  # Of a user's class, or an integer of too many digits.
        return f"a value of type {type(value).__name__} ({error})"
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."


def check_string(what: str, value: object) -> None:
    """InputError unless it is a string."""
    if not isinstance(value, str):
        raise InputError(f"{what} is {shown(value)}; expected a string")


# Names of jobs, phases, pools, hosts and kinds: the same in Python and in workload files.

NAME_LENGTH = 200
"""The maximum number of characters of a name."""

_REFUSED = r"\x00-\x1f\x7f-\x9f\ufdd0-\ufdef\ufffe\uffff"
"""Control characters and noncharacters, which terminals and XML cannot show."""

NAME_PATTERN = rf"^[^{_REFUSED}]*$"
"""The pattern of names in workload files, which hold no lone surrogates."""

UNSAFE_REMEDY = "remove the control characters and the characters that are not Unicode"

_UNSAFE = re.compile(rf"[{_REFUSED}\ud800-\udfff]")


def check_name(what: str, value: object, longest: float = NAME_LENGTH) -> None:
    """InputError unless it is a string that a workload file accepts as a name."""
    if value.__class__ is str and 0 < len(value) <= longest and value.isprintable():
        return  # The usual case: fast.
    check_string(what, value)
    assert isinstance(value, str)
    if not value:
        raise InputError(f"{what} is {value!r}; expected a string that is not empty")
    if len(value) > longest:
        raise InputError(f"{what} is {shown(value)}; give it at most {longest} characters")
    if _UNSAFE.search(value):
        raise InputError(f"{what} is {shown(value)}; {UNSAFE_REMEDY}")


def as_name(text: str, longest: int = NAME_LENGTH) -> str:
    """A name from text that others chose: "?" replaces what a name cannot have."""
    return _UNSAFE.sub("?", text)[:longest] or "?"


def check_type(what: str, value: object, kinds: Any, remedy: str) -> None:
    """InputError unless it is of one of these types."""
    if not isinstance(value, kinds):
        raise InputError(f"{what} is {shown(value)}; {remedy}")


def check_all(what: str, values: object, kinds: Any, remedy: str) -> None:
    """InputError unless they are a list or a tuple of values of one of these types."""
    if not isinstance(values, list | tuple) or not all(isinstance(v, kinds) for v in values):
        raise InputError(f"{what} is {shown(values)}; {remedy}")


def check_path(what: str, value: object, optional: bool = True) -> None:
    """InputError unless it is a path, or None if it is optional."""
    is_path = isinstance(value, str) or hasattr(value, "__fspath__")
    if not is_path and (value is not None or not optional):
        raise InputError(f"{what} is {shown(value)}; expected a path, as a string or a Path")
    if is_path:
        check_encodable(what, str(value))


def check_encodable(what: str, text: str) -> None:
    """InputError for a string that the operating system cannot get, with a lone surrogate.

    Those in which Python keeps the bytes of names that are not UTF-8 are accepted.
    """
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise InputError(
            f"{what} is {shown(text)}; remove the characters that are not Unicode"
        ) from None


def check_text(what: str, value: object) -> None:
    """InputError unless it is a string that is not empty."""
    if not isinstance(value, str) or not value:
        raise InputError(f"{what} is {shown(value)}; expected a string that is not empty")


def check_whole(what: str, value: object, least: int = 1) -> None:
    """InputError unless it is a whole number of at least this."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InputError(f"{what} is {shown(value)}; give a whole number >= {least}")
    if value > MAX_WHOLE:
        raise InputError(f"{what} is {shown(value)}; give a whole number <= {MAX_WHOLE}")


def check_number(what: str, value: object) -> None:
    """InputError unless it is a finite number."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise InputError(f"{what} is {shown(value)}; give a number")
    if not abs(value) <= MAX_FLOAT:
        raise InputError(f"{what} is {shown(value)}; give a finite number")


def check_seconds(what: str, value: object) -> None:
    """InputError unless it is a finite number of at least 0."""
    check_number(what, value)
    assert isinstance(value, int | float)
    if value < 0:
        raise InputError(f"{what} is {shown(value)}; give seconds >= 0")
