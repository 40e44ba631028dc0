"""What can be named: every kind of algorithm and every GPU, with facts that are found by trying."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from winolab.algorithm import FORMS, parse_algorithm
from winolab.cli import listing
from winolab.cli.command import app
from winolab.device import DATASHEETS, datasheet
from winolab.ref.records.table import records

ALL = ["forward", "backward_data", "backward_filter"]


def test_every_kind_says_what_it_serves() -> None:
    rows = {row["kind"]: row for row in listing.algorithms()}
    assert list(rows) == list(FORMS)
    served = {kind: (row["reference"], row["strides"]) for kind, row in rows.items()}
    assert served == {
        "direct": (ALL, True),
        "winograd": (ALL, False),
        "gamma": (ALL[:2], False),
        "dwm": (ALL, True),
        "omega": (ALL[2:], False),
        "winrs": (ALL[2:], True),
        "fft": (ALL, False),
    }
    assert rows["direct"]["cuda"] == rows["dwm"]["cuda"] == ALL
    assert rows["winograd"]["cuda"] == rows["gamma"]["cuda"] == ALL[:2]
    assert rows["omega"]["cuda"] == rows["winrs"]["cuda"] == ALL[2:]
    for row in rows.values():
        assert str(parse_algorithm(row["form"])).startswith(row["kind"])
        assert row["what"].endswith(".")
    assert rows["gamma"]["options"] == ["points", "scaling", "variant"]


def test_every_device_is_listed_with_its_facts() -> None:
    rows = {row["device"]: row for row in listing.devices()}
    assert list(rows) == list(DATASHEETS)
    for short, row in rows.items():
        assert datasheet(row["name"]) == datasheet(short)
    h100 = rows["h100"]
    facts = ("compute_capability", "multiprocessors", "planned")
    assert [h100[name] for name in facts] == ["9.0", 132, True]
    assert h100["fp32_tflops"] == pytest.approx(66.9, abs=0.05)
    assert [short for short, row in rows.items() if not row["planned"]] == [
        "titanx", "v100", "rtx2080ti",
    ]  # fmt: skip


@pytest.mark.parametrize("command", ["algorithms", "devices"])
def test_the_commands_print_tables_and_json(command: str) -> None:
    rows = json.loads(CliRunner().invoke(app, [command, "--json"]).stdout)
    assert rows == getattr(listing, command)()
    for width in ("50", "80", "200"):
        shown = CliRunner().invoke(app, [command], env={"COLUMNS": width}).stdout
        assert max(map(len, shown.splitlines())) <= int(width)
        for row in rows:
            assert row.get("kind", row.get("device")) in shown
    assert "left out" not in CliRunner().invoke(app, [command, "--wide"]).stdout.lower()


def test_a_table_of_the_algorithms_has_no_markup() -> None:
    assert "``" not in CliRunner().invoke(app, ["algorithms", "--wide"]).stdout


def test_moduli_are_whole_where_there_is_room() -> None:
    """One of F(7, 3) has a text of 624 characters, of which 80 were shown at any width."""
    longest = max((c.points for c in records(7, 3, None)), key=len)
    assert len(longest) > 600
    for sizes in ((), (7, 3)):
        found = [c for c in records(None, None, None) if sizes in ((), (c.n, c.r))]
        asked = ["records", *map(str, sizes), "--published"]
        shown = CliRunner().invoke(app, [*asked, "--wide"]).stdout
        assert all(record.points in shown for record in found)
        assert "…" not in shown
        assert "--wide" not in shown
    narrow = " ".join(CliRunner().invoke(app, asked).stdout.split())
    assert longest not in narrow
    assert "Moduli that end in … are whole with --wide." in narrow
    assert "…" not in CliRunner().invoke(app, ["records", "2", "3"]).stdout
