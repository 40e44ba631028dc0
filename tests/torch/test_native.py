"""Where the native module comes from, or why there is none; what it does is shown in
tests/gpu/torch."""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from winolab.torch import native
from winolab.torch.native import Native, Unavailable


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("WINOLAB_CACHE", str(tmp_path))
    monkeypatch.delenv("WINOLAB_NATIVE", raising=False)
    return tmp_path


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A compiler that writes down that it ran, and takes a moment."""
    folder = tmp_path_factory.mktemp("compiler")
    script = folder / "c++"
    script.write_text(
        f"#!/bin/sh\necho run >> {folder}/runs\nsleep 0.3\n"
        'while [ "$1" != -o ]; do shift; done\necho compiled > "$2"\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    return folder


def runs(compiler: Path) -> int:
    return len((compiler / "runs").read_text().splitlines())


def test_it_is_compiled_once(compiler: Path, folder: Path) -> None:
    first = native.compiled()
    assert first.read_text() == "compiled\n"
    assert native.compiled() == first
    assert runs(compiler) == 1
    first.write_text("damaged")  # its name tells
    assert native.compiled().read_text() == "compiled\n"
    assert runs(compiler) == 2
    assert not list(folder.glob("*.compiling"))


def test_another_pytorch_has_another(compiler: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = native.compiled()
    monkeypatch.setattr(torch, "__version__", "99.0")
    assert native.compiled() != first


def test_others_wait_for_who_compiles(compiler: Path) -> None:
    found: list[Path] = []
    threads = [threading.Thread(target=lambda: found.append(native.compiled())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({*found}) == 1
    assert len(found) == 4
    assert runs(compiler) == 1


def test_who_was_stopped_is_not_waited_for(compiler: Path, folder: Path) -> None:
    key = native.compiled().name.split("-")[0]
    for path in folder.glob("*.so"):
        path.unlink()
    claim = folder / f"{key}.compiling"
    claim.touch()
    old = time.time() - native.PATIENCE - 1
    os.utime(claim, (old, old))
    assert native.compiled().exists()
    assert not claim.exists()


def test_who_is_stopped_meanwhile_is_not_waited_for(
    compiler: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = native.compiled().name.split("-")[0]
    for path in folder.glob("*.so"):
        path.unlink()
    monkeypatch.setattr(native, "PATIENCE", 1)
    (folder / f"{key}.compiling").touch()
    assert native.compiled().exists()
    assert runs(compiler) == 2


def test_who_compiles_gives_signs(tmp_path: Path) -> None:
    claim, late = tmp_path / "claim", [True]
    claim.touch()
    os.utime(claim, (0, 0))

    def communicate(timeout: float) -> tuple[bytes, bytes]:
        if late:
            late.pop()
            raise subprocess.TimeoutExpired("c++", timeout)
        return b"", b"said"

    process: Any = SimpleNamespace(communicate=communicate)
    assert native._said(process, claim) == b"said"
    assert not native._claimed(claim)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("/nowhere/c++", "/nowhere/c++ cannot be run"),
        ("false", "false fails"),
        ("sh -c 'echo no such header >&2; exit 1'", "no such header"),
    ],
)
def test_why_there_is_none(
    monkeypatch: pytest.MonkeyPatch, folder: Path, command: str, said: str
) -> None:
    monkeypatch.setenv("CXX", command)
    with pytest.raises(Unavailable, match=re.escape(said)):
        native.compiled()
    assert not list(folder.glob("*.compiling"))


def test_headers_and_a_compiler_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(native.shutil, "which", lambda name: None)
    with pytest.raises(Unavailable, match=r"no C\+\+ compiler: install one"):
        native.compiled()
    monkeypatch.setenv("CXX", "c++")
    monkeypatch.setattr(native.sysconfig, "get_path", lambda name: "/nowhere")
    with pytest.raises(Unavailable, match=r"no Python\.h in /nowhere"):
        native.compiled()


def test_what_is_no_module_is_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "no.so"
    path.write_bytes(b"text")
    with pytest.raises(Unavailable, match=r"invalid ELF header|file too short"):
        native.loaded(path)


def told() -> tuple[Native, list[Any]]:
    """A Native without a module, and what a module is told."""
    return Native([1], {(2, 3): 0}), []


def module(calls: list[Any]) -> Any:
    return SimpleNamespace(
        setup=lambda *given: calls.append(("setup", given[:2])),
        keep=lambda *given: calls.append(given),
        call=lambda *given: None,
    )


CALL = SimpleNamespace(
    quick=len, laid=lambda: ((2, 3, 4, 5), True), dtype="float16", workspace=7, index=1
)
CALL.settled = CALL
LARGE = SimpleNamespace(settled=CALL)  # of more workspace than there was memory for
OTHER = SimpleNamespace(settled=SimpleNamespace(quick=None))  # has more to do


def test_calls_wait_for_the_module() -> None:
    by, calls = told()
    by.keep("forward", -1, (1,), (2,), CALL)
    by.keep("forward", -1, (1,), (3,), OTHER)
    by.use(module(calls))
    by.keep("backward_filter", 1, (4,), (5,), LARGE)
    result = (2, 5, 3, 4), (60, 1, 20, 5), torch.float16, 7, 1
    assert calls == [
        ("setup", ([1], {(2, 3): 0})),
        (0, -1, (1,), (2,), CALL, *result),
        (2, 1, (4,), (5,), CALL, *result),
    ]


@pytest.mark.parametrize("off", [False, True])
def test_it_is_begun_unless_it_is_off(monkeypatch: pytest.MonkeyPatch, off: bool) -> None:
    by, begun = told()
    monkeypatch.setattr(by, "load", lambda: begun.append(threading.current_thread().name))
    if off:
        monkeypatch.setenv("WINOLAB_NATIVE", "0")
    for _ in range(2):
        by.begin()
    by.wait()
    assert begun == ([] if off else ["winolab-native"])


def test_python_serves_where_there_is_none(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    by, _ = told()
    monkeypatch.setenv("CXX", "false")
    monkeypatch.setattr(native.driver, "replacing", lambda: 1)
    with caplog.at_level("INFO", "winolab.torch"):
        assert not by.load()
    assert "calls take Python's way: false fails" in caplog.text
    monkeypatch.setattr(native.driver, "replacing", lambda: None)
    with caplog.at_level("INFO", "winolab.torch"):
        assert not by.load()
    assert "the driver is older than CUDA 12.0" in caplog.text
    assert by.call is None
    by.keep("forward", -1, (1,), (2,), CALL)
    assert by._waiting is None  # nothing waits in vain


def test_python_serves_where_the_cache_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    by, _ = told()
    (tmp_path / "file").touch()
    monkeypatch.setenv("WINOLAB_CACHE", str(tmp_path / "file" / "cache"))
    monkeypatch.setattr(native.driver, "replacing", lambda: 1)
    with caplog.at_level("INFO", "winolab.torch"):
        assert not by.load()
    assert "calls take Python's way: [Errno 20] Not a directory" in caplog.text
    assert by._waiting is None
