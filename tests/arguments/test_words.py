import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

import winolab
from winolab.arguments.words import agreeing, plural, type_of, with_article
from winolab.ref.arithmetic.formats import format_named
from winolab.ref.arithmetic.simulated import arithmetic

TREES = {
    str(path): ast.parse(path.read_text()) for path in Path(winolab.__file__).parent.rglob("*.py")
}
# Numbers of these names are no single thing where a message has them: sizes of blocks, and counts
# that are refused, or said, because they are others than 1.
NEVER_ONE = {
    "v.bm", "v.kc", "v.channels", "vector", "self.block", "self.width", "self.config.bm", "self.bi",
    "self.merged", "self.pitch", "found.pitch", "problem.ndim", "tile.alpha", "states", "known",
    "size", "self.groups", "parts", "self.parts", "len(algorithm.tiles)", "problem.filter",
    "' and '.join((str(k.grid) for k in self.parts))",
}  # fmt: skip
NO_NUMBERS = {"algorithm", "self.name", "precision"}


@pytest.mark.parametrize("count", range(4))
def test_one_thing_is_singular(count: int) -> None:
    is_one = count == 1
    assert plural(count, "work tile") == f"{count} work tile{'' if is_one else 's'}"
    assert agreeing(count, "differs", "differ") == ("differs" if is_one else "differ")


@pytest.mark.parametrize(
    ("value", "said"),
    [(3, "an int"), (3.0, "a float"), ("x", "a str"), ([], "a list"), (None, "None")],
)
def test_a_type_has_its_article(value, said: str) -> None:
    assert type_of(value) == said


@pytest.mark.parametrize("noun", ["an array", "an int64", "a uint8", "an unknown", "a ufunc"])
def test_articles_are_those_of_sounds(noun: str) -> None:
    assert with_article(noun.partition(" ")[2]) == noun


def _texts() -> Iterator[tuple[str, ast.JoinedStr]]:
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                yield f"{path}:{node.lineno}", node


def _counted() -> Iterator[str]:
    """Every noun that some message counts by ``plural``."""
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "plural":
                noun = node.args[1]
                assert isinstance(noun, ast.Constant), f"{path}:{node.lineno}"
                yield str(noun.value)


def _several(value: ast.expr, before: str) -> bool:
    """Whether a number is a constant of the module, ends a range or is a product's last factor."""
    name = value.value if isinstance(value, ast.Subscript) else value
    constant = isinstance(name, ast.Name) and name.id.isupper()
    known = ast.unparse(value) in NEVER_ONE | NO_NUMBERS
    return constant or known or before.endswith(("× ", " to "))


def test_what_one_message_counts_all_count() -> None:
    """A noun that ``plural`` counts somewhere has nowhere a fixed s behind a number."""
    nouns = sorted(set(_counted()), key=len, reverse=True)
    assert len(nouns) > 30
    behind = re.compile(rf" ({'|'.join(nouns)})s\b(?!=)")
    wrong = []
    for where, text in _texts():
        for i, (value, after) in enumerate(pairwise(text.values)):
            if isinstance(value, ast.FormattedValue) and isinstance(after, ast.Constant):
                before = ast.unparse(text.values[i - 1]) if i else ""
                found = behind.match(str(after.value))
                if found and not _several(value.value, before.strip("'")):
                    wrong.append(f"{where}: {{{ast.unparse(value.value)}}}{found[0]}")
    assert not wrong, "\n".join(wrong)


def test_no_article_stands_before_a_name_of_a_type() -> None:
    wrong = [
        where
        for where, text in _texts()
        for before, value in pairwise(text.values)
        if isinstance(before, ast.Constant)
        and isinstance(value, ast.FormattedValue)
        and re.search(r"\ban? $", str(before.value))
        and "__name__" in ast.unparse(value.value)
    ]
    assert not wrong


def test_refusals_are_one_sentence() -> None:
    """What is wrong; what was expected: no colon before that, and no full stop behind."""
    found = []
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and node.args):
                continue
            if ast.unparse(node.func).endswith(("Error", "SystemExit")):
                text = _plain(node.args[0])
                found.append(text)
                assert not text.endswith("."), f"{path}:{node.lineno}: {text}"
                assert not re.search(r": expected|[Aa]ccepted:|\. [A-Z]", text), f"{path}: {text}"
    assert len(found) > 400


def test_what_is_unknown_is_told_all_that_is_known() -> None:
    with pytest.raises(ValueError, match=r"^unknown precision 'fp8'; expected one of exact, mp:"):
        arithmetic("fp8")
    with pytest.raises(ValueError, match=r"^unknown format 'fp31'; .* did you mean 'fp32'\?$"):
        format_named("fp31")


def _plain(node: ast.expr) -> str:
    """A text as the source has it, values in braces."""
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_plain, node.values))
    if isinstance(node, ast.Constant):
        return str(node.value)
    return "{}"
