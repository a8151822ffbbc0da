"""Options of Slurm's commands: how they are written, and the values that they take."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from slotwise.core.errors import InputError, suggestion

MIB = 1 << 20
"""The bytes of an amount of memory without a unit."""

UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
"""The units of amounts of memory."""

ARRAY_MAX = 10_000
"""The most tasks of an array, which are jobs of one submission."""

DIGITS_MAX = 10
"""The most digits to which a number in the path of an output is filled."""

FIELD_SECONDS = {1: (60,), 2: (60, 1), 3: (3600, 60, 1)}
"""The seconds of each field of a time, by the number of its fields."""

_TIME = re.compile(r"(?:(\d+)-)?(\d+(?::\d+){0,2})")
_MEMORY = re.compile(r"(\d+)([KMGT]?)B?", re.IGNORECASE)
_RANGE = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?")


@dataclass(frozen=True, slots=True)
class OptionTable:
    """The options of a command.

    values, flags  long names with and without a value
    short    letters, and the long names that they stand for
    noted    names without effect here, on which users may rely
    refused  names that cannot be honoured, with the remedy
    """

    values: frozenset[str]
    flags: frozenset[str]
    short: Mapping[str, str]
    noted: frozenset[str]
    refused: Mapping[str, str]

    @classmethod
    def of(cls, words: str, **refused: str) -> OptionTable:
        """Parse `A:account= H:hold exclusive!`: `=` takes a value, `!` is noted."""
        stated = [one.rpartition(":") for one in words.split()]
        names = [name.rstrip("!") for _, _, name in stated]
        return cls(
            frozenset(name.rstrip("=") for name in names if name.endswith("=")),
            frozenset(name for name in names if not name.endswith("=")),
            {letter: name.rstrip("!=") for letter, _, name in stated if letter},
            frozenset(name.rstrip("!=") for _, _, name in stated if name.endswith("!")),
            {name.replace("_", "-"): remedy for name, remedy in refused.items()},
        )

    def name_of(self, word: str) -> str:
        """The full name of a long option, of which a beginning suffices. InputError."""
        known = {*self.values, *self.flags}
        begun = [name for name in sorted(known) if word and name.startswith(word)]
        if word in known or len(begun) == 1:
            return word if word in known else begun[0]
        hint = suggestion(word, known, "docs/howto/slurm-commands.md lists the options")
        raise InputError(f"unrecognized option --{word}; {hint}")


@dataclass(frozen=True, slots=True)
class Words:
    """The words of a command line: the values of options by name, and the other words."""

    options: Mapping[str, Sequence[str]]
    rest: Sequence[str]

    def last(self, name: str, default: str = "") -> str:
        """The value of an option that is stated last."""
        return self.options[name][-1] if name in self.options else default

    def listed(self, name: str) -> list[str] | None:
        """The values of an option with commas, or None without it."""
        if name not in self.options:
            return None
        return [one for text in self.options[name] for one in text.split(",") if one]

    def has(self, name: str) -> bool:
        """Whether the option is stated."""
        return name in self.options

    def below(self, lower: Mapping[str, Sequence[str]]) -> Words:
        """These words, with options of a lower rank where these do not state them."""
        return Words({**lower, **self.options}, self.rest)


def parse(words: Sequence[str], table: OptionTable, *, stops: bool = False) -> Words:
    """Parse words as Slurm does: `--name value`, `--name=value`, `-nvalue`. InputError.

    With `stops` the first word that is not an option ends the options.
    """
    found: dict[str, list[str]] = {}
    rest, left = list[str](), list(words)
    while left:
        word = left.pop(0)
        if word == "--" or (stops and (not word.startswith("-") or word == "-")):
            rest += left if word == "--" else [word, *left]
            break
        if not word.startswith("-") or word == "-":
            rest.append(word)
        elif word.startswith("--"):
            stated, has_value, value = word[2:].partition("=")
            name = table.name_of(stated)
            if name in table.flags:  # Some flags have values that may be left out.
                found.setdefault(name, []).append(value)
                continue
            if not has_value:
                value = _value_after(left, f"--{name}")
            found.setdefault(name, []).append(value)
        else:
            _parse_letters(word[1:], left, table, found)
    for name, remedy in table.refused.items():
        if name in found:
            raise InputError(f"--{name} is not supported; {remedy}")
    return Words(found, rest)


def _parse_letters(
    letters: str, left: list[str], table: OptionTable, found: dict[str, list[str]]
) -> None:
    while letters:
        letter, letters = letters[0], letters[1:]
        name = table.short.get(letter)
        if name is None:
            raise InputError(f"invalid option -{letter}; see docs/howto/slurm-commands.md")
        if name in table.flags:
            found.setdefault(name, []).append("")
            continue
        value = letters.removeprefix("=") if letters else _value_after(left, f"-{letter}")
        found.setdefault(name, []).append(value)
        return


def _value_after(left: list[str], option: str) -> str:
    if not left:
        raise InputError(f"option {option} requires an argument")
    return left.pop(0)


def noted(words: Words, table: OptionTable) -> str:
    """The note about stated options that have no effect here; empty without any."""
    names = [f"--{name}" for name in words.options if name in table.noted]
    return f"without effect in slotwise: {', '.join(names)}" if names else ""


# Values.


def seconds_of_time(text: str) -> float | None:
    """Seconds of `--time`: minutes, [H:]M:S, D-H[:M[:S]]; None without a limit. InputError."""
    if text.upper() in ("UNLIMITED", "INFINITE", "-1", "0"):
        return None
    found = _TIME.fullmatch(text)
    if found is None:
        raise InputError(
            f"--time is {text!r}; expected minutes, minutes:seconds, hours:minutes:seconds or"
            " days-hours:minutes:seconds"
        )
    days, fields = found[1], [int(one) for one in found[2].split(":")]
    units = (3600, 60, 1)[: len(fields)] if days else FIELD_SECONDS[len(fields)]
    total = sum(number * unit for number, unit in zip(fields, units, strict=True))
    return float(int(days or 0) * 86_400 + total) or None


def bytes_of_memory(option: str, text: str) -> int | None:
    """Bytes of an amount such as 4G, in MiB without a unit; None for 0, all. InputError."""
    found = _MEMORY.fullmatch(text)
    if found is None:
        raise InputError(f"{option} is {text!r}; expected a number with K, M, G or T, as in 4G")
    return int(found[1]) * UNITS.get(found[2].upper(), MIB) or None


def whole(option: str, text: str, least: int = 1) -> int:
    """A whole number, the larger one of a range such as 1-1. InputError."""
    number = text.rpartition("-")[2]
    if not number.isdecimal() or int(number) < least:
        raise InputError(f"{option} is {text!r}; expected a whole number >= {least}")
    return int(number)


def amounts_of_gres(option: str, text: str) -> dict[str, int]:
    """Amounts by name of `gpu:2,license` or `gpu:a100:2`, whose kind is ignored. InputError."""
    found: dict[str, int] = {}
    for one in filter(None, text.split(",")):
        parts = one.removeprefix("gres/").replace("=", ":").split(":")
        count = parts[-1] if len(parts) > 1 and parts[-1].isdecimal() else "1"
        if not parts[0] or len(parts) > 3:
            raise InputError(f"{option} is {text!r}; expected names and numbers, as in gpu:2")
        found[parts[0]] = found.get(parts[0], 0) + int(count)
    return {name: count for name, count in found.items() if count and name != "none"}


def gpus_of(option: str, text: str) -> int:
    """The number of GPUs of `2`, `a100:2` or `a100:1,v100:1`. InputError."""
    return sum(whole(option, one.rpartition(":")[2], 0) for one in text.split(","))


@dataclass(frozen=True, slots=True)
class ArrayTasks:
    """The numbers of the tasks of an array, and the most that run at once, or 0."""

    numbers: tuple[int, ...]
    limit: int = 0

    @property
    def step(self) -> int:
        """The distance of the first two numbers; 1 of a single one."""
        return self.numbers[1] - self.numbers[0] if len(self.numbers) > 1 else 1


def array_tasks(text: str) -> ArrayTasks:
    """The tasks of `--array`, such as 1-9:2,12%4. InputError."""
    listed, has_limit, limit = text.partition("%")
    numbers: set[int] = set()
    for one in listed.split(","):
        found = _RANGE.fullmatch(one)
        if found is None or found[3] == "0" or int(found[2] or found[1]) < int(found[1]):
            raise InputError(
                f"--array is {text!r}; expected numbers as in 0-15, 1,3 or 0-9:2%4"
            )
        last, step = int(found[2] or found[1]), int(found[3] or 1)
        if len(numbers) + (last - int(found[1])) // step >= ARRAY_MAX:
            raise InputError(f"--array is {text!r}; expected at most {ARRAY_MAX} tasks")
        numbers |= set(range(int(found[1]), last + 1, step))
    return ArrayTasks(tuple(sorted(numbers)), whole("--array", limit) if has_limit else 0)


def dependencies(text: str) -> tuple[list[str], bool]:
    """The jobs of `--dependency`, and whether they must succeed. InputError.

    Of Slurm's kinds, afterok and afterany are supported, one kind at a time.
    """
    if "?" in text:
        raise InputError(f"--dependency is {text!r}; `?` is not supported: separate with `,`")
    jobs, kinds = list[str](), set[str]()
    for one in filter(None, text.split(",")):
        kind, _, listed = one.partition(":")
        names = [name for name in listed.split(":") if name]
        if kind not in ("afterok", "afterany"):
            remedy = DEPENDENCY_REMEDIES.get(kind, "write afterok:ID or afterany:ID")
            raise InputError(f"--dependency is {text!r}; {kind} is not supported: {remedy}")
        if not names:
            raise InputError(f"--dependency is {text!r}; name a job, as in {kind}:17")
        kinds.add(kind)
        jobs += names
    if len(kinds) > 1:
        raise InputError(
            f"--dependency is {text!r}; afterok and afterany are not supported together: write"
            " afterany, and check in the script how the others ended"
        )
    return jobs, kinds != {"afterany"}


DEPENDENCY_REMEDIES: Mapping[str, str] = {
    "after": "submit this job from the script of the other one",
    "afternotok": "write afterany, and check in the script with `sacct -j ID -nXo State`",
    "aftercorr": "write afterok, which waits for the whole array",
    "singleton": "write afterany and the id of the job before it",
    "afterburstbuffer": "write afterok",
}


def expanded(
    pattern: str, value: Callable[[str, int], str | None], literal: Callable[[str], str] = str
) -> str:
    """The path of an output, with `%j`, `%4a` and the like replaced.

    value    what a letter stands for, with the number of digits at least; None if unknown
    literal  what other text becomes
    """
    if "\\" in pattern:  # Slurm takes such a path as it is.
        return literal(pattern.replace("\\", ""))
    pieces: list[str] = []
    for place, one in enumerate(re.split(r"(%\d*[a-zA-Z%])", pattern)):
        found = None
        if place % 2:
            digits = min(int(one[1:-1] or 0), DIGITS_MAX)
            found = literal("%") if one[-1] == "%" else value(one[-1], digits)
        pieces.append(literal(one) if found is None else found)
    return "".join(pieces)


def quoted(text: str) -> str:
    """Text as a part of a word of a shell; empty text has none."""
    return "'" + text.replace("'", "'\"'\"'") + "'" if text else ""


def directives(script: str) -> list[list[str]]:
    """The words of the lines `#SBATCH` before the first command of a script. InputError."""
    found: list[list[str]] = []
    for number, line in enumerate(script.splitlines(), 1):
        if line.startswith("#SBATCH"):
            try:
                found.append(shlex.split(line.removeprefix("#SBATCH"), comments=True))
            except ValueError as error:
                raise InputError(f"line {number} of the script: {error}: {line!r}") from None
        elif line.strip() and not line.lstrip().startswith("#"):
            break
    return found
