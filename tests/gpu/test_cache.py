"""Compiled kernels on disk."""

from __future__ import annotations

import pytest

from winolab.gpu import cache, nvrtc
from winolab.gpu.machine import MachineError


def test_compiled_code_is_cached_whole(tmp_path, monkeypatch) -> None:
    compiled = nvrtc.Compiled(b"\x7fELF", {"k": nvrtc.Resources(32, 0, 0)})
    calls = []
    monkeypatch.setenv("WINOLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(nvrtc, "version", lambda: (13, 0))
    monkeypatch.setattr(nvrtc, "compile_cubin", lambda *a: calls.append(a) or compiled)
    first = cache.cubin("source", "sm_90a", "k")
    assert cache.cubin("source", "sm_90a", "k") == first
    assert len(calls) == 1
    assert first.read_bytes() == b"\x7fELF"
    assert [p.name for p in first.parent.iterdir()] == [first.name]
    assert cache.cubin("other", "sm_90a", "k") != first
    monkeypatch.setenv("WINOLAB_DUMP", str(tmp_path / "dump"))
    cache.cubin("source", "sm_90a", "k")
    assert sorted(p.suffix for p in (tmp_path / "dump").iterdir()) == [".cu", ".txt"]


def test_code_is_kept_for_what_it_was_compiled_for(tmp_path, monkeypatch, compiler) -> None:
    """One source has a file for each architecture, compiler and set of its options."""
    monkeypatch.setenv("WINOLAB_CACHE", str(tmp_path))
    found = {cache.cubin("source", arch, "k") for arch in ("sm_80", "sm_86", "sm_90a")}
    monkeypatch.setattr(nvrtc, "version", lambda: (13, 99))
    found.add(cache.cubin("source", "sm_80", "k"))
    monkeypatch.setattr(nvrtc, "OPTIONS", (*nvrtc.OPTIONS, "--fmad=true"))
    found.add(cache.cubin("source", "sm_80", "k"))
    assert len(found) == len(compiler) == 5


def test_a_cache_that_cannot_be_written_names_itself(tmp_path, monkeypatch, compiler) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("WINOLAB_CACHE", str(tmp_path / "file" / "cache"))
    message = r"file/cache, which cannot be used \(Not a directory\): set WINOLAB_CACHE"
    with pytest.raises(MachineError, match=message):
        cache.cubin("source", "sm_90a", "k")


def test_a_cache_that_cannot_be_entered_names_itself(tmp_path, monkeypatch, compiler) -> None:
    def closed(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setenv("WINOLAB_CACHE", str(tmp_path))
    monkeypatch.setattr(cache.Path, "exists", closed)
    message = r"which cannot be used \(Permission denied\): set WINOLAB_CACHE"
    with pytest.raises(MachineError, match=message):
        cache.cubin("source", "sm_90a", "k")
    assert not compiler


def test_the_folder_is_named_by_variables_or_lies_at_home(tmp_path, monkeypatch) -> None:
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(cache.Path, "home", homeless)
    monkeypatch.setenv("WINOLAB_CACHE", str(tmp_path / "own"))
    assert cache.cache_folder() == tmp_path / "own"
    monkeypatch.delenv("WINOLAB_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.cache_folder() == tmp_path / "winolab"
    monkeypatch.delenv("XDG_CACHE_HOME")
    with pytest.raises(MachineError, match=r"no home directory .* set WINOLAB_CACHE to a folder"):
        cache.cache_folder()


def test_an_interrupt_leaves_nothing_half_written(tmp_path, monkeypatch, compiler) -> None:
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setenv("WINOLAB_CACHE", str(tmp_path))
    monkeypatch.setattr(cache.Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        cache.cubin("source", "sm_90a", "k")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_nothing_half_written(tmp_path, monkeypatch, compiler) -> None:
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setenv("WINOLAB_CACHE", str(tmp_path))
    monkeypatch.setattr(cache.Path, "replace", full)
    with pytest.raises(MachineError, match="No space left on device"):
        cache.cubin("source", "sm_90a", "k")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_can_be_made_can_be_written_to(tmp_path, monkeypatch) -> None:
    (tmp_path / "file").touch()
    for name, writable in (("", True), ("new/folder", True), ("file", False), ("file/in", False)):
        monkeypatch.setenv("WINOLAB_CACHE", str(tmp_path / name))
        assert cache.writable() is writable
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    for name in ("/proc", "/proc/none"):
        monkeypatch.setenv("WINOLAB_CACHE", name)
        assert not cache.writable()
