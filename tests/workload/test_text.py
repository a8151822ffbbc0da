"""Texts as plain data: JSON and YAML alike, by whichever parser, and the lines of values."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from slotwise.workload import text as text_module
from slotwise.workload.text import parse_text
from slotwise.workload.yaml_text import read_yaml

TEXTS = st.text("ab01é🦉:#-'\"{[!&*|>%@`~,. \\\n\t", max_size=6)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
)
DATA = st.dictionaries(
    TEXTS,
    st.recursive(
        SCALARS,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
        max_leaves=12,
    ),
    max_size=4,
)


@given(DATA, st.sampled_from([None, 2]))
def test_json_is_read_as_the_yaml_that_it_is(data: dict[str, Any], indent: int | None) -> None:
    """What `json` reads is what the parser of YAML reads of the same text."""
    written = json.dumps(data, indent=indent, allow_nan=False)
    assert parse_text(written)[0] == data
    assert read_yaml(written) == data


@given(DATA, st.booleans(), st.booleans())
def test_both_parsers_read_yaml_as_it_was_written(
    data: dict[str, Any], with_libyaml: bool, is_flow: bool
) -> None:
    """In block style and in flow style, with all that PyYAML puts in quotes."""
    written = yaml.safe_dump(data, allow_unicode=True, default_flow_style=is_flow)
    with pytest.MonkeyPatch.context() as patch:
        if not with_libyaml:
            patch.delattr(yaml, "CSafeLoader", raising=False)
        assert read_yaml(written) == data


def test_a_good_file_in_json_is_not_read_as_yaml(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parser of YAML, many times as slow, is asked for line numbers only."""
    asked = []

    def read(text: str, with_lines: bool = False) -> Any:
        asked.append(with_lines)
        return read_yaml(text, with_lines)

    monkeypatch.setattr(text_module, "read_yaml", read)
    data, lines = parse_text('{"a": [1,\n{"b": 2}]}')
    assert data == {"a": [1, {"b": 2}]}
    assert asked == []
    assert [lines.get(path) for path in (("a",), ("a", 0), ("a", 1, "b"))] == [1, 1, 2]
    assert asked == [True]


def test_lines_of_missing_keys() -> None:
    """A path that leads to nothing has no line, whatever lies on its way."""
    _, lines = parse_text("a: [1]\nb: text\n")
    paths: list[tuple[str | int, ...]] = [(), ("c",), ("a", 1), ("a", "x"), ("b", 0), (0,)]
    assert [lines.get(path) for path in paths] == [None] * len(paths)


def test_aliases_and_merges_lead_to_the_lines_of_their_targets() -> None:
    """An entry that `<<` brings stands where its anchor is; what is written instead, there."""
    data, lines = parse_text(
        "one: &one\n  a: 1\n  b: 2\ntwo:\n  <<: *one\n  b: 3\nthree:\n  - *one\n"
        "  - <<: [{a: 4}, *one]\n"
    )
    assert data["two"] == {"a": 1, "b": 3}
    assert data["three"] == [{"a": 1, "b": 2}, {"a": 4, "b": 2}]
    assert lines.get(("two", "a")) == 2
    assert lines.get(("two", "b")) == 6
    assert lines.get(("three", 0)) == 1
    assert lines.get(("three", 1, "b")) == 3


def test_invalid_utf8_is_replaced_in_json_as_in_yaml() -> None:
    """Two halves make a character; one half is none, and does not go on as such."""
    assert parse_text('{"a": "\\ud83e\\udd89"}')[0] == {"a": "🦉"}
    assert parse_text('{"a": "\\ud83e"}')[0] == {"a": "\ufffd"}


def test_tabs_in_json_are_accepted() -> None:
    """They are blanks in JSON, and a fault behind them is still found."""
    data, lines = parse_text('{"a":\t1,\n\t"b":\t[\n\t2]}')
    assert data == {"a": 1, "b": [2]}
    assert lines.get(("b", 0)) in (3, None)  # None where there is no libyaml.
