"""Bad workload files: each is refused with the place, the value and the remedy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from slotwise.core.errors import InputError
from slotwise.workload.file import parse_workload, read_workload

BOOK = Path(__file__).with_name("bad_files.txt").read_text(encoding="utf-8")
WRITTEN = re.findall(r"^== (.+)\n((?:.*\n)*?)=> (.+)$", BOOK, re.MULTILINE)
"""Name, text and message of each file that can be written out."""

JOB = "jobs: [{id: a, phases: [{name: m, work: 1}]}]\n"


def laughs() -> str:
    """A few lines whose aliases stand for a million millions of values."""
    rows = [f"a{n}: &a{n} [{', '.join(10 * [f'*a{n - 1}'])}]\n" for n in range(1, 12)]
    return "a0: &a0 [ha, ha, ha]\n" + "".join(rows)


LARGE = {
    "work of 5000 digits": (
        f"slotwise: 1\njobs: [{{id: a, phases: [{{name: m, work: 1{5000 * '0'}}}]}}]",
        "jobs[0].phases[0].work (line 2) is inf: expected a finite number",
    ),
    "a long id": (
        f"slotwise: 1\njobs: [{{id: {300 * 'x'}, phases: [{{name: m, work: 1}}]}}]",
        "xxx...: expected at most 200 characters",
    ),
    "a NUL": ("slotwise: 1\n\0", "not YAML or JSON: unacceptable character #x0000"),
    "nested lists": (
        f"slotwise: 1\njobs: {1500 * '['}{1500 * ']'}",
        "its values are nested too deeply; use fewer levels",
    ),
    "lists in YAML, 100,000 deep": (
        f"slotwise: 1\njobs: {100_000 * '['}",
        "its values are nested too deeply; use fewer levels",
    ),
    "lists in JSON, 100,000 deep": (
        f'{{"slotwise": 1, "jobs": {100_000 * "["}{100_000 * "]"}}}',
        "its values are nested too deeply; use fewer levels",
    ),
    "blocks in YAML": (
        100_000 * "- ",
        "its values are nested too deeply; use fewer levels",
    ),
    "lists in JSON at the edge": (
        f'{{"slotwise": 1, "jobs": {980 * "["}{980 * "]"}}}',
        "",
    ),
    "a key of a million characters": (
        f"slotwise: 1\n? {1_000_000 * 'x'}\n: 1\n{JOB}",
        f"{57 * 'x'}... (line 2): unknown key '{57 * 'x'}...'; known keys: slotwise,",
    ),
    "a billion laughs": (
        laughs(),
        "its aliases expand to more than 1000000 values; use fewer of them",
    ),
    "laughs as parameters": (
        "slotwise: 1\njobs:\n- id: a\n  program: grep\n  output: o\n  parameters:\n"
        + "".join(f"    {line}\n" for line in laughs().splitlines()),
        "its aliases expand to more than 1000000 values; use fewer of them",
    ),
    "an empty file": ("", "the file must contain keys and values; begin it with `slotwise: 1`"),
}
"""The same for what is better made than written."""


@pytest.mark.parametrize(
    ("text", "message"),
    [pytest.param(text, message, id=name) for name, text, message in WRITTEN]
    + [pytest.param(*case, id=name) for name, case in LARGE.items()],
)
def test_each_error_is_named(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the place, the value and the remedy; nothing is made on disk."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as refused:
        parse_workload(text)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_without_libyaml_the_messages_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where PyYAML was built without libyaml, its own parser reads all files."""
    with_it = {name: refusal(text) for name, text, _ in WRITTEN}
    monkeypatch.delattr(yaml, "CSafeLoader")
    differ = {name for name, text, _ in WRITTEN if refusal(text) != with_it[name]}
    assert differ <= {"the code of no character"}


def refusal(text: str) -> str:
    """What a text is refused for."""
    with pytest.raises(InputError) as refused:
        parse_workload(text)
    return str(refused.value)


def test_the_file_of_errors_is_read_completely() -> None:
    """No case of the book is passed over because of how it is written."""
    assert len(WRITTEN) == BOOK.count("\n== ") > 100


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """A missing file, a folder, a binary file and one of another encoding are named as such."""
    (tmp_path / "binary.yaml").write_bytes(bytes(range(256)))
    (tmp_path / "utf16.yaml").write_bytes("slotwise: 1".encode("utf-16"))
    for name, reason in {
        "none.yaml": "No such file or directory; name a workload file",
        ".": "Is a directory; name a workload file",
        "binary.yaml": "not text in UTF-8; name a workload file",
        "utf16.yaml": "not text in UTF-8; name a workload file",
    }.items():
        with pytest.raises(InputError) as refused:
            read_workload(tmp_path / name)
        assert str(refused.value) == f"{tmp_path / name}: {reason}"


def test_the_first_error_is_reported_first() -> None:
    """Of several faults the one that stands first in the file is named."""
    text = f"slotwise: 1\ncluster: {{slots: -1}}\nobjective: {{penalty: 3}}\n{JOB}"
    with pytest.raises(InputError, match=r"^cluster\.slots \(line 2\) is -1"):
        parse_workload(text)
