"""The settings of the site that `scripts/docs` builds from the Markdown pages.

The pages hold no syntax of Sphinx. The lists of `docs/index.md` become the table of contents.
Each name that an item of `docs/reference.md` begins with gets its signature and docstring,
with all public methods, or those that the item calls its own.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

import slotwise

project = "slotwise"
author = "The slotwise authors"
release = slotwise.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "docs/index"
include_patterns = ["*.md", "docs/**.md"]
html_theme = "furo"
html_title = f"slotwise {release}"
html_copy_source = False
myst_enable_extensions = ["dollarmath"]
myst_fence_as_directive = ["math"]
html_math_renderer = "mathml"  # Needs no script of another host.
myst_heading_anchors = 4  # As GitHub makes them.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
maximum_signature_line_length = 88
suppress_warnings = ["misc.highlighting_failure"]

MATH = (
    (r"\\dots\b", r"\\ldots"),
    (r"\\[bB]ig(?![a-z])", ""),
    (r"\\tag\{(.*?)\}", r"\\qquad (\1)"),
    ("∎", r"\\text{∎}"),
)
"""Commands that the writer of MathML does not know, and what it knows instead."""

FIELD = re.compile(r"^(\w[\w, ]*?) {2,}(\S.*)$")
ITEM_LINK = re.compile(r"\]\(([^)\s#]+\.md)\)")


def with_contents(text: str) -> str:
    """The index and one hidden table of contents for each of its sections."""
    tables = []
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        title = section.partition("\n")[0]
        pages = dict.fromkeys(ITEM_LINK.findall(section))
        entries = "\n".join(f"{page.removesuffix('.md')}" for page in pages)
        tables.append(f"```{{toctree}}\n:hidden:\n:caption: {title}\n\n{entries}\n```")
    return "\n\n".join([text, *tables])


def with_docstrings(text: str) -> str:
    """The reference page, and below each list the docstrings of the names in it."""

    def directive(match: re.Match[str]) -> str:
        name, item = match[1], match[0]
        kind = "autoclass" if inspect.isclass(getattr(slotwise, name)) else "autofunction"
        methods = ", ".join(re.findall(r"`(\w+)`", item.partition("its own methods are ")[2]))
        members = f"   :members: {methods}\n" if kind == "autoclass" else ""
        return f"```{{eval-rst}}\n.. {kind}:: slotwise.{name}\n{members}```\n"

    return re.sub(r"^- `(\w+)`.*\n(?:  .*\n)*", directive, text, flags=re.MULTILINE)


def add_to_page(app: Any, page: str, source: list[str]) -> None:
    """Complete the two pages that the site makes longer."""
    if page == root_doc:
        source[0] = with_contents(source[0])
    elif page == "docs/reference":
        source[0] = with_docstrings(source[0])


def lay_out(
    app: Any, what: str, name: str, obj: object, options: Any, lines: list[str]
) -> None:
    """Show each list of names with texts in a second column as a list of definitions."""
    laid_out: list[str] = []
    listed = False
    for line in lines:
        if match := FIELD.match(line):
            listed = True
            laid_out += ["", f"``{match[1]}``", f"    {match[2]}"]
        elif listed and line.startswith("  "):
            laid_out.append(f"    {line.strip()}")
        else:
            listed = listed and not line.strip()
            laid_out.append(line)
    lines[:] = laid_out


def write_start(app: Any, error: Exception | None) -> None:
    """Let the root of the site lead to its index."""
    if error is None:
        page = f'<meta http-equiv="refresh" content="0; url={root_doc}.html">\n'
        Path(app.outdir, "index.html").write_text(page, encoding="utf-8")


def write_formula(self: Any, node: Any) -> None:
    """Write a formula as MathML, which browsers draw without a script."""
    formula = node.astext()
    for unknown, known in MATH:
        formula = re.sub(unknown, known, formula)
    self.body.append(tex2mathml(formula, as_block=isinstance(node, nodes.math_block)))
    raise nodes.SkipNode


def setup(app: Any) -> None:
    """Register what completes the pages."""
    app.add_html_math_renderer("mathml", (write_formula, None), (write_formula, None))
    app.connect("source-read", add_to_page)
    app.connect("autodoc-process-docstring", lay_out)
    app.connect("build-finished", write_start)
