from __future__ import annotations

import ctypes
import re
import sys
from types import SimpleNamespace

import pytest

from winolab.gpu import driver as launch
from winolab.gpu.machine import MachineError, install
from winolab.gpu.params import (
    ALIGNMENT,
    INT,
    MAP,
    POINTER,
    Layout,
    Params,
    PositionsMap,
    TensorMap,
)
from winolab.gpu.runtime import replay as record


def test_without_cupy_it_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    launch.cupy.cache_clear()
    with pytest.raises(MachineError, match=re.escape(install("gpu"))):
        launch.cupy()
    launch.cupy.cache_clear()


class CUDARuntimeError(RuntimeError):
    """CuPy's."""


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (0, "CuPy counts 0 CUDA devices: nvidia-smi has to list a GPU$"),
        ("cudaErrorNoDevice: no CUDA-capable device is detected", "finds no usable GPU"),
        (
            "cudaErrorInsufficientDriver: CUDA driver version is insufficient",
            r"CuPy 14\.0 .* a CUDA version at least as new as CuPy's .*InsufficientDriver",
        ),
    ],
)
def test_without_a_gpu_or_with_another_driver_it_says_so(monkeypatch, found, message) -> None:
    def count():
        if isinstance(found, str):
            raise CUDARuntimeError(found)
        return found

    runtime = SimpleNamespace(getDeviceCount=count, CUDARuntimeError=CUDARuntimeError)
    fake = SimpleNamespace(__version__="14.0", cuda=SimpleNamespace(runtime=runtime))
    monkeypatch.setitem(sys.modules, "cupy", fake)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    launch.cupy.cache_clear()
    with pytest.raises(MachineError, match=message):
        launch.cupy()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    with pytest.raises(MachineError, match="and CUDA_VISIBLE_DEVICES, now '7', to name it"):
        launch.cupy()
    launch.cupy.cache_clear()


@pytest.mark.parametrize("early", [False, True])
def test_a_launch_gives_the_driver_its_structs(monkeypatch, early: bool) -> None:
    """CUlaunchConfig and CUlaunchAttribute of cuda.h: sizes, and what they say."""
    assert (ctypes.sizeof(launch._Attribute), ctypes.sizeof(launch._Config)) == (72, 56)
    seen = []

    def extended(config, handle, params, extra) -> int:
        c = config._obj
        attribute = c.attributes[0]
        seen.append((*c.grid, *c.block, c.shared, c.stream, handle.value, params.value, extra))
        assert (c.count, attribute.id, attribute.value[0]) == (early, 6, 1)
        return error

    class Refused(RuntimeError):
        pass

    host = SimpleNamespace(cuda=SimpleNamespace(driver=SimpleNamespace(CUDADriverError=Refused)))
    monkeypatch.setattr(launch, "driver", lambda: SimpleNamespace(cuLaunchKernelEx=extended))
    monkeypatch.setattr(launch, "cupy", lambda: host)
    made = launch.Launch(launch.Kernel("k", 1234, 99, None), (3, 2, 1), 64, 5678, early)
    for stream, error in ((7, 0), (8, 1)):
        made.on(stream)
        assert made.start() == error
    launch.check(0)
    with pytest.raises(Refused):
        launch.check(1)
    assert seen == [(3, 2, 1, 64, 1, 1, 99, stream, 1234, 5678, None) for stream in (7, 8)]


class Refused(RuntimeError):
    """CuPy's CUDADriverError."""


def host() -> SimpleNamespace:
    return SimpleNamespace(cuda=SimpleNamespace(driver=SimpleNamespace(CUDADriverError=Refused)))


MAPPED = Layout(("map", MAP), ("x", POINTER), ("n", INT))


def _mapped(address: int) -> Params:
    box = TensorMap(
        address, 2, (24, 9, 5, 1, 3), (48, 432, 16, 2160), (32, 26, 2, 1, 1), steps=(1, 3, 1, 8, 1)
    )
    return MAPPED.pack(box, address, 7)


def test_tensor_maps_are_what_the_driver_is_given(monkeypatch) -> None:
    """cuTensorMapEncodeTiled's arguments, in order; the struct lies as the driver wants it."""
    seen = []

    def encode(to, kind, rank, address, sizes, strides, box, steps, *policies) -> int:
        assert to.value % ALIGNMENT == 0
        seen.append(
            (kind, rank, address.value, *map(tuple, (sizes, strides, box, steps)), policies)
        )
        return error

    class Refused(RuntimeError):
        pass

    host = SimpleNamespace(cuda=SimpleNamespace(driver=SimpleNamespace(CUDADriverError=Refused)))
    driver = SimpleNamespace(cuTensorMapEncodeTiled=encode)
    monkeypatch.setattr(launch, "driver", lambda: driver)
    monkeypatch.setattr(launch, "cupy", lambda: host)
    params = _mapped(1 << 20)
    assert MAPPED.offsets == (0, 128, 136)
    ((offset, tensor),) = params.maps()
    error = 0
    launch.encoder(tensor, ctypes.addressof(params.buffer()) + offset)(3 << 20)
    array = (24, 9, 5, 1, 3), (48, 432, 16, 2160), (32, 76, 2, 1, 1), (1, 3, 1, 8, 1)
    assert seen == [(1, 5, 3 << 20, *array, (0, 2, 3, 0))]  # 64-byte swizzle, zeros outside
    error = 1
    with pytest.raises(Refused):
        launch.encoder(tensor, ctypes.addressof(params.buffer()))(16)


@pytest.mark.parametrize("rank", [4, 5])
def test_maps_that_walk_positions_are_encoded_without_a_depth_or_with_one(
    monkeypatch, rank
) -> None:
    """cuTensorMapEncodeIm2col's arguments, in order: corners by width, height and depth."""
    seen = []

    def encode(
        to, kind, rank, address, sizes, strides, lower, upper, channels, pixels, steps, *how
    ):
        arrays = *map(tuple, (sizes, strides, lower, upper)), channels, pixels, tuple(steps)
        seen.append((kind, rank, address.value, *arrays, how))
        return 0

    monkeypatch.setattr(launch, "driver", lambda: SimpleNamespace(cuTensorMapEncodeIm2col=encode))
    depth = 1 if rank == 4 else 5
    walked = PositionsMap(
        0, 2, (24, 9, 7, depth, 3), (48, 432, 3024, 3024 * depth), (64, 64, 1, 1, 1),
        steps=(1, 2, 3, 4, 1), lower=(-1, -2, -3), upper=(1, 2, 3), rank=rank,
    )  # fmt: skip
    memory = ctypes.create_string_buffer(256)
    launch.encoder(walked, -(-ctypes.addressof(memory) // 64) * 64)(3 << 20)
    whole = (24, 9, 7, 5, 3), (48, 432, 3024, 15120), (-1, -2, -3), (1, 2, 3)
    flat = (24, 9, 7, 3), (48, 432, 3024), (-1, -2), (1, 2)
    steps = (1, 2, 3, 1) if rank == 4 else (1, 2, 3, 4, 1)
    array = flat if rank == 4 else whole
    assert seen == [(1, rank, 3 << 20, *array, 64, 64, steps, (0, 3, 3, 0))]


@pytest.mark.parametrize("replaces", [True, False], ids=["12.0", "older"])
def test_a_tensor_map_that_was_written_is_told_its_next_address(monkeypatch, replaces) -> None:
    """By cuTensorMapReplaceAddress, where the driver has it; never before it was written whole."""
    seen, status = [], [1]
    driver = SimpleNamespace(
        cuTensorMapEncodeTiled=lambda to, kind, rank, address, *how: (
            seen.append(("whole", to.value, address.value)) or status[0]
        )
    )
    if replaces:
        driver.cuTensorMapReplaceAddress = lambda to, address: (
            seen.append(("address", to.value, address.value)) or status[0]
        )
    monkeypatch.setattr(launch, "driver", lambda: driver)
    monkeypatch.setattr(launch, "cupy", host)
    ((_, tensor),) = _mapped(1 << 20).maps()
    encode = launch.encoder(tensor, 64)
    for status[0], address in ((1, 16), (0, 32), (0, 48), (1, 64), (0, 80)):
        if status[0]:
            with pytest.raises(Refused):
                encode(address)
        else:
            encode(address)
    later = "address" if replaces else "whole"
    whole, again = [("whole", 64, a) for a in (16, 32)], [(later, 64, a) for a in (48, 64, 80)]
    assert seen == whole + again


@pytest.mark.gpu
def test_a_map_with_another_address_is_the_map_of_that_address() -> None:
    """Bit by bit, of sizes, strides, steps and swizzles as kernels have them."""
    ((_, tensor),) = _mapped(1 << 20).maps()
    plain = TensorMap(0, 4, (64, 9, 5, 3, 2), (256, 2304, 11520, 34560), (32, 9, 2, 1, 1), True)
    walked = PositionsMap(
        0, 2, (64, 9, 5, 1, 2), (128, 1152, 5760, 5760), (64, 64, 1, 1, 1),
        steps=(1, 2, 1, 1, 1), lower=(-1, -1, 0), upper=(0, -1, 0), rank=4,
    )  # fmt: skip
    for map in (tensor, plain, walked):
        one, other = (ctypes.create_string_buffer(128 + ALIGNMENT) for _ in range(2))
        places = [ctypes.addressof(v) + -ctypes.addressof(v) % ALIGNMENT for v in (one, other)]
        encode = launch.encoder(map, places[0])
        for address in (1 << 20, 5 << 30, (5 << 30) + 16):
            encode(address)
            launch.encoder(map, places[1])(address)
            assert ctypes.string_at(places[0], 128) == ctypes.string_at(places[1], 128)


KERNEL = launch.Kernel("k", 0, 0, None)


@pytest.fixture
def started(monkeypatch) -> list[int]:
    """The streams of launches that do nothing; on REFUSED the driver takes none."""
    seen: list[int] = []

    class Launch:
        def __init__(self, *_) -> None:
            self.stream = 0

        def on(self, stream: int) -> None:
            self.stream = stream

        def start(self) -> int:
            seen.append(self.stream)
            return int(self.stream == REFUSED)

    monkeypatch.setattr(launch, "Launch", Launch)
    return seen


REFUSED = 13  # a stream


def test_recorded_tensor_maps_follow_their_arrays(monkeypatch, started) -> None:
    encoded = []
    monkeypatch.setattr(launch, "encoder", lambda map, to: encoded.append)
    params = _mapped(record.address_of(1) + 64)
    recording = record.Recording({"k": KERNEL}, lambda k: k["k"]((1, 1, 1), 32, params))
    for stream, x in ((7, 4096), (7, 4096), (7, 8192), (8, 8192)):
        recording.replay(stream, 1 << 30, x)
    assert encoded == [4160, 8256]
    assert started == [7, 7, 7, 8]


def test_a_replay_that_the_driver_refuses_raises(monkeypatch, started) -> None:
    class Refused(RuntimeError):
        pass

    host = SimpleNamespace(cuda=SimpleNamespace(driver=SimpleNamespace(CUDADriverError=Refused)))
    monkeypatch.setattr(launch, "cupy", lambda: host)
    params = Layout(("x", POINTER)).pack(record.address_of(0))
    recording = record.Recording({"k": KERNEL}, lambda k: k["k"]((1, 1, 1), 32, params))
    recording.replay(7, 1 << 30)
    with pytest.raises(Refused):
        recording.replay(REFUSED, 1 << 30)


def test_a_grid_that_cuda_does_not_launch_is_refused(started) -> None:
    params = Layout(("x", POINTER)).pack(record.address_of(0))
    message = "k takes 65536 × 1 blocks along y and z, and CUDA launches 65535 of each: convolve"
    with pytest.raises(ValueError, match=message):
        record.Recording({"k": KERNEL}, lambda k: k["k"]((1, 65_536, 1), 32, params))
    record.Recording({"k": KERNEL}, lambda k: k["k"]((1, 65_535, 1), 32, params)).replay(7, 1 << 30)
    assert started == [7]


def test_addresses_that_could_not_be_written_are_written_again(monkeypatch, started) -> None:
    def encode(address: int) -> None:
        if address == 3 << 12:
            raise OSError("no such map")
        encoded.append(address)

    encoded: list[int] = []
    monkeypatch.setattr(launch, "encoder", lambda map, to: encode)
    params = _mapped(record.address_of(0))
    recording = record.Recording({"k": KERNEL}, lambda k: k["k"]((1, 1, 1), 32, params))
    recording.replay(0, 1 << 12)
    with pytest.raises(OSError, match="no such map"):
        recording.replay(0, 3 << 12)
    recording.replay(0, 1 << 12)
    assert encoded == [1 << 12, 1 << 12]
