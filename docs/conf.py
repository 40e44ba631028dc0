"""The documentation site: ``make docs`` builds it in build/site, warnings being errors.

What lies outside this folder, the papers' executed notebooks and the pages of the kernel families,
is copied to docs/_generated first, which git ignores.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import nbformat
from docutils import nodes

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import winolab  # noqa: E402
from docs.copies import GENERATED, copies  # noqa: E402

project, author = "winolab", "The winolab authors"
project_copyright = author
version = release = winolab.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc"]
exclude_patterns = []
html_theme = "furo"
html_title = f"winolab {version}"
html_static_path = ["_static"]
html_css_files = ["wide.css"]
html_show_sourcelink = False

nb_execution_mode = "off"  # the notebooks are executed where they are kept
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
python_maximum_signature_line_length = 88
python_use_unqualified_type_names = True

DOCS = Path(__file__).resolve().parent
COPIES = copies(ROOT)
ALT = 400  # characters that tell a figure
LINK = re.compile(r"(?<!!)\[([^]\[]*)\]\(([^)\s:#]+)(#[^)\s]*)?\)")


def generate() -> None:
    """Make the copies, only where they changed: builds stay short."""
    for path in GENERATED.rglob("*.*"):
        if path not in COPIES:
            path.unlink()
    for path, source in COPIES.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file() or path.read_bytes() != source.read_bytes():
            path.write_bytes(source.read_bytes())


def read(app: Any, name: str, source: list[str]) -> None:
    """Links lead to the copies; those that leave the site are their labels alone. A doctest ends
    where its output ends."""
    here = DOCS / f"{name}.md"
    if not here.is_file():
        return  # a notebook
    original = COPIES.get(here, here)
    copies = {source: path for path, source in COPIES.items()}

    def relinked(found: re.Match[str]) -> str:
        target = (original.parent / found[2]).resolve()
        target = copies.get(target, target)
        if target.suffix not in (".md", ".ipynb") or not target.is_relative_to(DOCS):
            return found[1]
        return f"[{found[1]}](/{target.relative_to(DOCS)}{found[3] or ''})"

    parts = re.split(r"(^```.*?^```\n)", source[0], flags=re.DOTALL | re.MULTILINE)
    parts[::2] = (LINK.sub(relinked, part) for part in parts[::2])
    parts[1::2] = (part.replace("\n\n```\n", "\n```\n") for part in parts[1::2])
    source[0] = "".join(parts)


def plain(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are plain text with ``literals``, roles and examples: no other markup."""
    for i, line in enumerate(lines):
        if line.lstrip().startswith((">>>", "...")):
            continue
        parts = re.split(r"(``.*?``|:\w+:`.*?`)", line)
        parts[::2] = (re.sub(r"([*|]|_\b)", r"\\\1", part) for part in parts[::2])
        lines[i] = "".join(parts)


def described(app: Any, doctree: nodes.document) -> None:
    """Figures of notebooks are told in the words that are kept beside them."""
    path = DOCS / f"{app.env.docname}.ipynb"
    if path not in COPIES:
        return
    shown = (o.get("data", {}) for cell in nbformat.read(path, 4).cells
             for o in cell.get("outputs", ()))  # fmt: skip
    words = [" ".join(data["text/plain"].split()) for data in shown if "image/png" in data]
    for image, text in zip(doctree.findall(nodes.image), words, strict=True):
        image["alt"] = text if len(text) <= ALT else f"{text[: ALT - 1]}…"


def setup(app: Any) -> None:
    generate()
    app.connect("source-read", read)
    app.connect("doctree-read", described)
    app.connect("autodoc-process-docstring", plain)
