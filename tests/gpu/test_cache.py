"""Compiled kernels on disk."""

from __future__ import annotations

import pytest

from winolab.gpu import cache, nvrtc


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


def test_a_cache_that_cannot_be_written_names_itself(tmp_path, monkeypatch, compiler) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("WINOLAB_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(RuntimeError, match=r"file/cache, which cannot be changed .*WINOLAB_CACHE"):
        cache.cubin("source", "sm_90a", "k")


def test_a_full_disk_leaves_nothing_half_written(tmp_path, monkeypatch, compiler) -> None:
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setenv("WINOLAB_CACHE", str(tmp_path))
    monkeypatch.setattr(cache.Path, "replace", full)
    with pytest.raises(RuntimeError, match="No space left on device"):
        cache.cubin("source", "sm_90a", "k")
    assert list(tmp_path.iterdir()) == []
