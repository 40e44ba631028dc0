"""device_model.toml: every entry is read, by its name, and says what it means."""

from __future__ import annotations

import ast
import re
import tokenize
import tomllib
from dataclasses import fields, replace
from pathlib import Path
from token import NUMBER

import pytest

import winolab.gpu
from winolab.device import H100, datasheet
from winolab.gpu.planner.device_model import MODEL, DeviceModel, model_of, text
from winolab.gpu.planner.device_sections import Walked
from winolab.gpu.planner.rates import copying, from_l2, l2_bytes_a_cycle, overlapped

GPU = Path(winolab.gpu.__file__).parent
SECTIONS = tomllib.loads(text())
SHARED = ("device", "overlap", "gamma")  # what several families have
# Fractions of a cost.py that are no constants of a device: shares of the blocks that a GPU holds,
# which are tried, and TF32's rate.
FRACTIONS = {
    "depthwise": {0.25, 0.5},
    "implicit_gemm": {0.5},
    "wgrad_grouped": {0.125, 0.25, 0.5},
    "wgrad_thin": {0.25, 0.5},
}
ENTRIES = [
    (section, name) for section, entries in SECTIONS.items()
    for name, entry in entries.items() if isinstance(entry, dict)
]  # fmt: skip


@pytest.mark.parametrize(("section", "name"), ENTRIES, ids=".".join)
def test_an_entry_is_used_and_says_what_it_is(section: str, name: str) -> None:
    folder = GPU / "families" / section
    if "_" in section and not folder.is_dir():  # of a kernel of the family
        folder = folder.with_name(section.rpartition("_")[0])
    files = GPU.rglob("*.py") if section in SHARED else [*folder.glob("*.py")]
    if isinstance(getattr(MODEL, section), Walked):
        files = [*files, GPU / "families" / "clusters.py"]
    owner = section if section in SHARED else rf"(?:m|{section})"
    texts = [*(file.read_text("utf-8") for file in files)]
    found = any(re.search(rf"\b{owner}\.{name}\b", text) for text in texts)
    assert found or re.search(rf"\bm = MODEL\.{section}\b(?s:.*)\bm\.{name}\b", "".join(texts))
    entry = SECTIONS[section][name]
    assert set(entry) - {"fitted", "source"} == {"value", "unit", "meaning"}
    if entry.get("fitted", True):
        assert "source" not in entry  # the section's rows
    elif any(e.get("fitted", True) for e in SECTIONS[section].values() if isinstance(e, dict)):
        assert entry["source"]  # those rows are not its own
    assert getattr(getattr(MODEL, section), name) == entry["value"] > 0


@pytest.mark.parametrize("section", SECTIONS)
def test_a_model_has_a_dozen_parameters_at_most_and_names_its_rows(section: str) -> None:
    assert sum(of == section for of, _ in ENTRIES) <= 12
    facts = SECTIONS[section]
    assert {"file", "date"} <= facts.keys()
    fitted = [e.get("fitted", True) for e in facts.values() if isinstance(e, dict)]
    if section != "device":
        assert "selection" in facts
        assert (facts.get("rows", 0) > 0 < facts.get("spread", 0)) == any(fitted)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("\nlaunch = {", "\nlanch = {", r"\[device\] .* lacks lanch, launch"),
        ("\nlaunch = { value = 3e-06,", "\nlaunch = { value = 0,", "device.launch .* is 0;"),
        (
            "\nlaunch = { value = 3e-06,",
            '\nlaunch = { value = "3e-06",',
            "expected a positive number",
        ),
        ("[nested]", "[nests]", "lacks sections nested, nests"),
        ("\ncopy = {", "\nunused = { value = 1 }\ncopy = {", r"\[device\] .* lacks unused"),
    ],
)
def test_what_is_misspelled_missing_or_too_much_is_an_error(old, new, message) -> None:
    assert text().count(old) == 1
    with pytest.raises(ValueError, match=message):
        model_of(text().replace(old, new))
    assert model_of(text()) == MODEL


def test_the_file_is_read_when_a_section_is_asked_for() -> None:
    unread = object.__new__(DeviceModel)
    assert not vars(unread)
    with pytest.raises(AttributeError, match=r"^DeviceModel has no section rates$"):
        _ = unread.rates  # pyright: ignore[reportAttributeAccessIssue]
    assert not vars(unread)
    assert unread == MODEL
    assert vars(unread).keys() == SECTIONS.keys()
    assert replace(unread, device=MODEL.device) == MODEL


def test_no_rate_is_written_elsewhere() -> None:
    """Bytes a second and seconds are the file's: one value a physical quantity."""
    for file in [*(GPU / "families").rglob("*.py"), *(GPU / "planner").glob("*.py")]:
        with tokenize.open(file) as lines:
            numbers = [
                t.string for t in tokenize.generate_tokens(lines.readline) if t.type == NUMBER
            ]
        assert not [n for n in numbers if re.fullmatch(r"\d[\d.]*e(1\d|-\d)", n)], file
    assert {f.name for f in fields(DeviceModel)} == set(SECTIONS)


def test_models_have_no_fitted_number_in_their_code() -> None:
    """What overlaps has its exponent from the file, and what is a share of something, too."""
    files = [*(GPU / "families").glob("*/cost.py"), *(GPU / "families").glob("*.py")]
    assert len(files) > 20
    for file in files:
        nodes = [*ast.walk(ast.parse(file.read_text("utf-8")))]
        fractions = {
            n.value for n in nodes
            if isinstance(n, ast.Constant) and isinstance(n.value, float) and n.value % 1
        }  # fmt: skip
        if file.name == "cost.py" or file.stem in ("reading", "clusters"):
            assert fractions == FRACTIONS.get(file.parent.name, set()), file
        called = [n for n in nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]
        for sharp in (n.args[0] for n in called if n.func.id == "overlapped"):  # type: ignore[union-attr]
            named = ast.unparse(sharp)
            assert re.fullmatch(r"model\.overlap\.\w+|m\.sharp|sharp", named), (file, named)


def test_rates_follow_the_device() -> None:
    h200, a100 = datasheet("h200"), datasheet("a100")
    assert copying(H100, 2.85e12) == pytest.approx(1)
    assert copying(h200, 2.85e12) == pytest.approx(H100.bandwidth / h200.bandwidth)
    assert from_l2(H100, 9e12) == pytest.approx(1)
    cycles = a100.multiprocessors * a100.clock
    assert from_l2(a100, l2_bytes_a_cycle() * cycles) == pytest.approx(1)


def test_what_overlaps_takes_the_longest_and_a_little_more() -> None:
    assert overlapped(4, 0.0, 0.0) == 0
    assert overlapped(4, 3.0, 0.0) == pytest.approx(3)
    assert 3 < overlapped(4, 3.0, 2.0) < 3.2
    assert overlapped(4, 1.0, 1.0) == pytest.approx(2**0.25)
