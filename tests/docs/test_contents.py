"""The content of the documents: working links, and all names, keys and metrics."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest
from pydantic import BaseModel

import slotwise
from slotwise import Job, Phase, Tasks
from slotwise.core.codec import encode_job
from slotwise.core.decisions import Decision
from slotwise.core.events import Event
from slotwise.core.objective import PENALTIES
from slotwise.jobs.loading import BUILTINS
from slotwise.policy.scheduler import ASSIGNERS, SCHEDULERS
from slotwise.workload import schema

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")
SOURCE = re.compile(r"`((?:src|tests|docs|scripts|benchmarks|experiments)/[\w./-]+\w)`")


def text_of(page: Path) -> str:
    """The text of a page."""
    return page.read_text(encoding="utf-8")


def anchors_of(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    outside = re.sub(r"^```.*?^```", "", text_of(page), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", outside, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_have_a_target(page: Path) -> None:
    """Every link inside the project leads to a file, and to a heading where it names one."""
    for link in LINK.findall(text_of(page)):
        if link.startswith(("http:", "https:", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name} links to {link}"
        assert not anchor or anchor in anchors_of(target), f"{page.name} links to {link}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_named_files_exist(page: Path) -> None:
    """Every file of the project that a page names in code type exists."""
    for name in SOURCE.findall(text_of(page)):
        assert (ROOT / name).exists(), f"{page.name} names {name}"


def test_every_public_name_is_documented() -> None:
    """The documents contain every name of the package in code type."""
    text = "\n".join(map(text_of, PAGES))
    missing = [name for name in slotwise.PUBLIC if not re.search(rf"`[^`\n]*\b{name}\b", text)]
    assert missing == []


def test_every_key_of_a_workload_file_is_documented() -> None:
    """Each entry of the schema has its table in the reference, with all of its keys."""
    page = text_of(DOCS / "workload-file.md")
    entries = [
        value
        for value in (*vars(schema).values(), *vars(schema).values())
        if isinstance(value, type) and issubclass(value, BaseModel) and value.model_fields
    ]
    keys = {f.alias or name for entry in entries for name, f in entry.model_fields.items()}
    assert [key for key in sorted(keys) if f"| `{key}` |" not in page] == []


@pytest.mark.parametrize("name", [*SCHEDULERS, *ASSIGNERS, *PENALTIES, *BUILTINS])
def test_every_registered_name_is_documented(name: str) -> None:
    """The reference pages name all allocators, assigners, penalties and built-in programs."""
    pages = [DOCS / name for name in ("workload-file.md", "concepts.md", "tutorial.md")]
    assert any(f"`{name}`" in text_of(page) for page in pages)


def test_every_metric_is_documented() -> None:
    """The page of the metrics has each metric of a result."""
    result = slotwise.simulate([Job("a", (Phase("map", Tasks(1, 1.0)),))], slots=1)
    page = text_of(DOCS / "metrics.md")
    assert [name for name in result.metrics if f"`{name}`" not in page] == []


def test_everything_in_a_log_is_documented() -> None:
    """The page of the log has all header keys, and all events and decisions with fields."""
    page = text_of(DOCS / "log-format.md")
    jobs = [Job("a", (Phase("map", Tasks(1, 1.0)),))]
    header = slotwise.simulate(jobs, slots=1).log.header.to_plain()
    entries = [*get_args(Event), *get_args(Decision)]
    names = [entry.__name__ for entry in entries]
    names += [field.name for entry in entries for field in fields(entry)]
    names += [key for host in header["cluster"] for key in host]
    names += [key for pool in header["pools"] for key in pool]
    names += [*header, *encode_job(jobs[0]), *encode_job(jobs[0])["phases"][0]]
    assert [name for name in names if f"`{name}`" not in page] == []


def test_every_page_is_listed() -> None:
    """The index links to every page of docs."""
    index = text_of(DOCS / "index.md")
    linked = {(DOCS / link).resolve() for link in LINK.findall(index)}
    pages = {page.resolve() for page in DOCS.rglob("*.md")} - {(DOCS / "index.md").resolve()}
    assert pages <= linked


def test_the_glossary_has_few_terms_that_several_pages_use() -> None:
    """At most 60 terms, in order, each once and on at least three pages beside the glossary."""
    page = DOCS / "glossary.md"
    rows = re.findall(r"^\| ([^|]+?)(?: \(`\w+`\))? \| .* \|$", text_of(page), re.MULTILINE)
    assert rows[0] == "term"
    terms = rows[1:]
    assert len(terms) <= 60
    assert terms == sorted(set(terms), key=str.lower)
    texts = [re.sub(r"\s+", " ", text_of(other)) for other in PAGES if other != page]
    used = {term: sum(term.lower() in text.lower() for text in texts) for term in terms}
    assert [term for term, pages in used.items() if pages < 3] == []
