"""What the machine says of itself, with and without a GPU."""

from __future__ import annotations

import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

from winolab.cli import environment
from winolab.gpu.machine import MachineError


def command(folder: Path, name: str, output: str, code: int = 0) -> None:
    """A command of that name which prints ``output``."""
    path = folder / name
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{output}\nEND\nexit {code}\n")
    path.chmod(0o755)


@pytest.fixture
def bare_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "cat").symlink_to("/bin/cat")
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_no_gpu_and_no_compiler_are_answers(bare_path: Path) -> None:
    assert environment.gpus() == []
    assert environment.compilers()["nvcc"] is None


@pytest.mark.parametrize("error", [MachineError, ImportError, OSError])
def test_what_is_missing_or_broken_is_none_and_mistakes_are_not(error) -> None:
    def ask() -> str:
        raise error("libcudnn.so.9")

    assert environment.found(ask) is None
    assert environment.found(lambda: "9.19.0") == "9.19.0"
    with pytest.raises(ZeroDivisionError):
        environment.found(lambda: 1 // 0)


def test_gpus_are_read_from_nvidia_smi(bare_path: Path) -> None:
    command(bare_path, "nvidia-smi", "NVIDIA H100 80GB HBM3, 81559 MiB, 580.1, 9.0")
    (gpu,) = environment.gpus()
    assert gpu["name"] == "NVIDIA H100 80GB HBM3"
    assert gpu["compute_cap"] == "9.0"


def test_a_failing_driver_is_no_gpu(bare_path: Path) -> None:
    command(bare_path, "nvidia-smi", "couldn't communicate with the NVIDIA driver", 9)
    assert environment.gpus() == []


def test_clocks_are_those_that_the_gpu_says(bare_path: Path) -> None:
    assert environment.clocks() == {}
    for text, expected in (
        ("1980, 2619\n1755, 2619", {"sm_mhz": 1980, "memory_mhz": 2619}),
        ("1980, [N/A]", {"sm_mhz": 1980}),
        ("[N/A], [Not Supported]", {}),
        ("No devices were found", {}),
    ):
        command(bare_path, "nvidia-smi", text)
        assert environment.clocks() == expected


def test_a_command_that_hangs_or_does_not_start_is_none(bare_path: Path, monkeypatch) -> None:
    broken = bare_path / "nvidia-smi"
    broken.write_bytes(b"\x7fELF of another processor")
    broken.chmod(0o755)
    assert environment.gpus() == []
    monkeypatch.setattr(environment, "PATIENCE", 0.1)
    broken.write_text("#!/bin/sh\nexec /bin/sleep 60\n")
    assert environment.gpus() == []
    assert environment.clocks() == {}


def test_the_compiler_release_is_read(bare_path: Path) -> None:
    command(bare_path, "nvcc", "Cuda compilation tools, release 12.4, V12.4.131")
    assert environment.compilers()["nvcc"] == "12.4, V12.4.131"


def test_the_compiler_of_kernels_is_the_one_that_they_take(monkeypatch) -> None:
    monkeypatch.setattr(environment.nvrtc, "version", lambda: (12, 9))
    assert environment.compilers()["nvrtc"] == "12.9"

    def missing() -> None:
        raise MachineError("no NVRTC")

    monkeypatch.setattr(environment.nvrtc, "version", missing)
    assert environment.compilers()["nvrtc"] is None


def test_what_kernels_need_of_cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise MachineError("there is none")

    monkeypatch.setenv("WINOLAB_CACHE", str(tmp_path / "yet" / "to be made"))
    monkeypatch.setattr(environment, "driver_cuda", lambda: (12, 4))
    monkeypatch.setattr(environment, "installed", lambda name: name == "cupy-cuda13x" or None)
    monkeypatch.setattr(environment.cudnn, "version", lambda: "9.1.0")
    expected = {"driver": "12.4", "cupy": "13", "cudnn": "9.1.0", "cache_writable": True}
    expected |= {"cupy_wheels": ["cupy-cuda13x"]}
    assert expected.items() <= environment.cuda().items()
    monkeypatch.setattr(environment, "driver_cuda", lambda: None)
    monkeypatch.setattr(environment, "installed", lambda name: None)
    monkeypatch.setattr(environment.cudnn, "version", missing)
    monkeypatch.setattr(environment.cache, "users_folder", missing)
    monkeypatch.setitem(sys.modules, "cupy", None)
    nothing = dict.fromkeys(("driver", "cupy", "cudnn", "cache"))
    assert environment.cuda() == {**nothing, "cupy_wheels": [], "cache_writable": False}


def test_a_cupy_without_a_wheels_name_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = SimpleNamespace(runtimeGetVersion=lambda: 12060)
    monkeypatch.setattr(environment, "installed", lambda name: None)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(runtime=runtime)))
    assert environment.cuda()["cupy"] == "12.6"


def test_two_wheels_of_cupy_are_asked_which_one_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The later one installed overwrote the other's files: no name of a wheel tells which."""
    both = ["cupy-cuda12x", "cupy-cuda13x"]
    runtime = SimpleNamespace(runtimeGetVersion=lambda: 12060)
    monkeypatch.setattr(environment, "installed", lambda name: name in both or None)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(runtime=runtime)))
    found = environment.cuda()
    assert (found["cupy"], found["cupy_wheels"]) == ("12.6", both)


PROJECT = '[project]\nname = "winolab"\n'


def test_this_checkout_is_one() -> None:
    assert environment.checkout() == Path(environment.__file__).parents[2]
    assert find_spec(environment.REPRODUCE)


@pytest.mark.parametrize(
    ("project", "mode", "taken"),
    [
        (PROJECT, 0o644, True),
        (PROJECT, 0o666, False),  # others can write what would be run
        ('[project]\nname = "other"\n', 0o644, False),
        ("[project", 0o644, False),
        ("project = 3", 0o644, False),
        (None, 0o644, False),
    ],
)
def test_only_a_checkout_of_winolab_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys, project: str | None, mode, taken
) -> None:
    script = tmp_path.joinpath(*environment.REPRODUCE.split(".")).with_suffix(".py")
    script.parent.mkdir(parents=True)
    script.touch()
    if project is not None:
        (tmp_path / "pyproject.toml").write_text(project)
        (tmp_path / "pyproject.toml").chmod(mode)
    monkeypatch.chdir(tmp_path)
    package = Path(environment.__file__).parents[2]
    assert environment.experiments() == (tmp_path if taken else package)
    told = f"winolab: running experiments of the checkout {tmp_path}\n" if taken else ""
    assert capsys.readouterr().err == told


def test_provenance_names_versions_and_processor() -> None:
    where = environment.provenance()
    assert where["winolab"] == environment.installed("winolab")
    assert environment.processor().endswith(("cores", ", 1 core"))
    assert where["device"] == environment.processor()
    assert environment.installed("no-such-distribution") is None
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    told = {*project["optional-dependencies"]} - {"gpu13", "docs", "dev"}
    assert set(environment.extras()) == told
