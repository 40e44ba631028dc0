"""Compiled kernels on disk."""

from __future__ import annotations

import os
import stat
from types import SimpleNamespace

import pytest

from winolab.gpu.machine import MachineError
from winolab.gpu.runtime import cache, nvrtc


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


@pytest.mark.parametrize("content", [b"", b"\x7fEL", b"\x7fELF of somebody else"])
def test_a_file_with_other_content_is_compiled_anew(tmp_path, monkeypatch, compiler, content):
    monkeypatch.setenv("WINOLAB_CACHE", str(tmp_path))
    first = cache.cubin("source", "sm_90a", "k")
    first.write_bytes(content)
    assert cache.cubin("source", "sm_90a", "k") == first
    assert len(compiler) == 2
    assert first.read_bytes() == b"\x7fELF"
    assert [path.name for path in tmp_path.iterdir()] == [first.name]


@pytest.mark.parametrize("mode", [0o666, 0o664])
def test_a_file_that_others_can_write_is_compiled_anew(tmp_path, monkeypatch, compiler, mode):
    monkeypatch.setenv("WINOLAB_CACHE", str(tmp_path))
    first = cache.cubin("source", "sm_90a", "k")
    first.chmod(mode)
    assert cache.cubin("source", "sm_90a", "k") == first
    assert len(compiler) == 2


def test_users_of_a_shared_folder_have_one_each(tmp_path, monkeypatch, compiler) -> None:
    """Users are pretended: the files are this one's, and so no other's."""
    monkeypatch.setenv("WINOLAB_CACHE", str(tmp_path))
    foreign = cache.cubin("source", "sm_90a", "k")
    tmp_path.chmod(0o1777)
    me = os.getuid()
    mine = cache.cubin("source", "sm_90a", "k")
    assert mine == tmp_path / f"user-{me}" / foreign.name
    assert cache.cubin("source", "sm_90a", "k") == mine
    assert len(compiler) == 2
    tmp_path.chmod(0o755)
    found = cache.Path.stat
    owner = dict.fromkeys((tmp_path, foreign), 4321)

    def owned(path, **how):
        return SimpleNamespace(st_mode=found(path, **how).st_mode, st_uid=owner.get(path, me))

    monkeypatch.setattr(cache.Path, "stat", owned)
    assert cache.cubin("source", "sm_90a", "k") == mine
    owner[mine] = 4321
    assert cache.cubin("source", "sm_90a", "k") == mine
    assert len(compiler) == 3
    owner[mine.parent] = 4321
    message = f"belong in {mine.parent}, which others can write to: set WINOLAB_CACHE"
    with pytest.raises(MachineError, match=message):
        cache.cubin("source", "sm_90a", "k")


def test_what_root_keeps_for_all_is_taken(tmp_path, monkeypatch, compiler) -> None:
    monkeypatch.setenv("WINOLAB_CACHE", str(tmp_path))
    first = cache.cubin("source", "sm_90a", "k")
    found = cache.Path.stat
    monkeypatch.setattr(
        cache.Path, "stat",
        lambda path, **how: SimpleNamespace(st_mode=found(path, **how).st_mode, st_uid=0),
    )  # fmt: skip
    monkeypatch.setattr(cache.os, "getuid", lambda: 1234)
    assert cache.cubin("source", "sm_90a", "k") == first
    assert len(compiler) == 1


def test_everyone_may_read_what_is_kept(tmp_path, monkeypatch, compiler) -> None:
    """Root may fill a folder for all, by an image."""
    monkeypatch.setenv("WINOLAB_CACHE", str(tmp_path))
    assert stat.S_IMODE(cache.cubin("source", "sm_90a", "k").stat().st_mode) == 0o644


@pytest.mark.parametrize("error", [PermissionError, FileNotFoundError])
def test_a_file_that_cannot_be_read_is_compiled_anew(tmp_path, monkeypatch, compiler, error):
    """One of root's, or that another process removed meanwhile."""

    def closed(path):
        raise error(13, "no", str(path))

    monkeypatch.setenv("WINOLAB_CACHE", str(tmp_path))
    first = cache.cubin("source", "sm_90a", "k")
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(cache.Path, "read_bytes", closed)
        assert cache.kept("source", "sm_90a") is None
        assert cache.cubin("source", "sm_90a", "k") == first
    assert len(compiler) == 2
    cache.remove(first)
    cache.remove(first)  # as another process did


def test_a_cache_that_cannot_be_written_names_itself(tmp_path, monkeypatch, compiler) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("WINOLAB_CACHE", str(tmp_path / "file" / "cache"))
    message = r"file/cache, which cannot be used \(Not a directory\): set WINOLAB_CACHE"
    with pytest.raises(MachineError, match=message):
        cache.cubin("source", "sm_90a", "k")


def test_a_cache_that_cannot_be_entered_names_itself(tmp_path, monkeypatch, compiler) -> None:
    def closed(path, **_):
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


def test_a_folder_that_another_thread_makes_meanwhile_is_used(tmp_path, monkeypatch) -> None:
    """Else what is compiled first lies where nothing looks for it any more."""
    folder, asked = tmp_path / "new", cache.own
    monkeypatch.setenv("WINOLAB_CACHE", str(folder))

    def own(path: cache.Path) -> bool:
        found = asked(path)
        folder.mkdir(exist_ok=True)
        return found

    monkeypatch.setattr(cache, "own", own)
    assert cache.users_folder() == folder
