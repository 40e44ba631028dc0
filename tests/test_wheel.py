"""What the wheel holds, and that the command works from it alone."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory"]
    subprocess.run([*command, str(folder)], check=True, cwd=ROOT, capture_output=True)
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


def test_it_holds_the_package_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    package = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "winolab").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert names == package


def test_it_declares_the_command_and_carries_the_licence(wheel: zipfile.ZipFile) -> None:
    named = {
        name.split(".dist-info/")[1]: name for name in wheel.namelist() if ".dist-info/" in name
    }
    assert "winolab = winolab.cli.command:main" in wheel.read(named["entry_points.txt"]).decode()
    assert "licenses/LICENSE" in named


def test_the_command_works_without_the_checkout(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    site = tmp_path / "site"
    wheel.extractall(site)
    script = (
        "import sys, winolab.cli.command as c; assert sys.argv[1] in c.__file__; "
        "del sys.argv[1]; c.main()"
    )

    def winolab(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", script, str(site), *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(site)},
            capture_output=True,
            text=True,
        )

    shown = winolab("transforms", "2", "3", "--json")
    assert shown.returncode == 0, shown.stderr
    refused = winolab("reproduce")
    assert refused.returncode == 2
    assert refused.stderr.startswith("winolab: ")
    assert "checkout" in refused.stderr
    assert refused.stderr.count("\n") == 1
