"""Mutants: each is found by its text wherever it moves, and changes nothing else."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from mutants.finding import Mutant, apply, find, parsed, places, read_renames, renamed
from mutants.run import SET, outcome, read_set

SOURCE = '''"""A queue."""


class Queue:
    """Waiting names."""

    def take(self, most: int) -> str | None:
        """The first name."""
        for name in self.names:  # In order.
            if len(name) > most:
                continue
            elif (
                name in self.held
                and most
            ):  # Kept.
                return None
        try:
            return self.names[0]  # The first.
        except IndexError as error:
            raise KeyError(most) from error
'''

KEPT = """elif (
                name in self.held
                and most
            ):  # Kept."""


def mutant(original: str, mutated: str = "pass", function: str = "Queue.take") -> Mutant:
    """A mutant of the queue."""
    return Mutant("core-001", "kind", "queue.py", function, original, mutated, ("tests/a.py",))


def mutated(folder: Path, source: str, wanted: Mutant) -> str | None:
    """The source with the mutant; None if it has no place there."""
    file = folder / "any.py"
    file.write_text(source)
    place = find(wanted, places([file], [wanted.function]))
    return place and apply(source, place.node, wanted.mutated)


@pytest.mark.parametrize(
    ("original", "new", "before", "after"),
    [
        ("return self.names[0]", "return None", "return self.names[0]  #", "return None  #"),
        ("if len(name) > most:", "if len(name) >= most:", "name) > most", "name) >= most"),
        (
            "if name in self.held and most:",
            "if name in self.held or most:",
            KEPT,
            "elif name in self.held or most:",
        ),
        (
            "except IndexError as error:",
            "except () as error:",
            "except IndexError",
            "except ()",
        ),
        ("for name in self.names:", "for name in []:", "self.names:  # In order.", "[]:"),
    ],
)
def test_one_statement_changes(
    tmp_path: Path, original: str, new: str, before: str, after: str
) -> None:
    """A statement, or the header of a compound one, is replaced; other text stays."""
    assert mutated(tmp_path, SOURCE, mutant(original, new)) == SOURCE.replace(before, after)


def test_a_mutant_follows_a_method_to_another_class(tmp_path: Path) -> None:
    """The last name of a function is enough if no function has the whole name."""
    wanted = mutant("return self.names[0]", function="Line.take")
    assert mutated(tmp_path, SOURCE, wanted) is not None
    assert mutated(tmp_path, SOURCE, mutant("return self.names[0]", function="put")) is None


def test_two_places_are_none(tmp_path: Path) -> None:
    """A mutant with several places is not found, unless one has the whole name."""
    twice = f"{SOURCE}\n\n{SOURCE.replace('Queue', 'Line')}"
    assert mutated(tmp_path, twice, mutant("return self.names[0]")) is not None
    other = mutant("return self.names[0]", function="Other.take")
    assert mutated(tmp_path, twice, other) is None
    assert mutated(tmp_path, f"{SOURCE}\n\n{SOURCE}", mutant("return self.names[0]")) is None


def test_a_mutant_follows_renames(tmp_path: Path) -> None:
    """Renames apply to functions, both texts and test files, whole names only."""
    renames = read_renames(
        "# Names\nnames = jobs  # all\ntake = pop\ntests/a.py = tests/b.py\n"
    )
    new = renamed(mutant("return self.names[0]", "return self.names_of[1]"), renames)
    assert (new.function, new.original) == ("Queue.pop", "return self.jobs[0]")
    assert (new.mutated, new.tests) == ("return self.names_of[1]", ("tests/b.py",))
    source = SOURCE.replace("names", "jobs").replace("take", "pop")
    assert mutated(tmp_path, source, new) is not None


@pytest.mark.parametrize(
    ("code", "output", "expected"),
    [
        (0, "3 passed", ("survived", "")),
        (
            1,
            "..F\nFAILED tests/a.py::test_one - assert 1\n",
            ("killed", "tests/a.py::test_one"),
        ),
        (2, "ERROR tests/a.py - NameError\n", ("killed", "tests/a.py")),
        (-11, "..", ("killed", "..")),
        (4, "no such option", ("error", "no such option")),
    ],
)
def test_an_exit_code_is_an_outcome(code: int, output: str, expected: tuple[str, str]) -> None:
    """Only failed tests, failed imports and crashes kill a mutant."""
    assert outcome(code, output) == expected


def test_the_set_is_well_formed() -> None:
    """The ids are unique, each text is one statement, and each mutant changes it."""
    mutants = read_set()
    assert (
        len({each.id for each in mutants}) == len(mutants) == len(json.loads(SET.read_text()))
    )
    for each in mutants:
        assert each.tests, each.id
        original, new = (ast.dump(parsed(text)) for text in (each.original, each.mutated))
        assert original != new, each.id
