"""A launch of a program as files that run again to the same bits, and records of programs."""

import atexit
import json
import struct
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mmulator as mm
from mmulator.errors import ExecutionFault, LaunchError
from mmulator.host.driver import Driver, Settings
from mmulator.host.jobs.job import JobResult, load_job, run_job
from mmulator.host.jobs.maps import resolve
from mmulator.isa.types import TYPES
from mmulator.observation.record.launches.capture import asked, capturing, raw_array, type_name, without_paths
from mmulator.observation.record.launches.replay import difference, following
from mmulator.observation.record.values import dtype_of
from mmulator.runtime.launch.regions import Region
from tests.jobs.test_tensor_maps import PTX, X
from tests.record.test_why_programs import KERNEL, TRITON, command
from tests.support import places
from tests.support.ptx_text import stored

EXAMPLES = places.ROOT / "examples"

# Memory behind a pointer in a struct, behind a pointer in memory, variables, dynamic shared memory of a cluster's other block.
LED = stored("led")


class Led:
    """A launch of `led` by a driver, whose memory lies where the system put it."""

    def __init__(self, **settings: Any) -> None:
        self.driver = Driver(Settings(device="sm_90", **settings))
        self.module = self.driver.load(LED, "led.ptx")
        self.x, self.out = np.arange(50, dtype=np.float32), np.zeros(50, np.float32)
        self.unused, self.table = np.zeros(3000, np.uint8), np.array([0, self.x.ctypes.data], np.uint64)

    def __call__(self, n: int = 50, add: float = 0.5) -> None:
        self.module.module.variables["scale"] = 3.0
        arrays = (self.table, self.x, self.out, self.unused)
        regions = [Region(a.ctypes.data, a.nbytes, label) for a, label in zip(arrays, ("table", "x", "out", "unused"))]
        params = struct.pack("<QIIQQf", self.table.ctypes.data, n, 0, 0, self.out.ctypes.data, add)
        function = self.module.function("led")
        self.driver.launch(function, 2, 32, params, regions, 128)


def again(folder: Path) -> JobResult:
    return run_job(load_job(folder / "launch.toml"))


def test_arrays_of_every_type_go_into_files_and_come_back(tmp_path: Path) -> None:
    """Also those of types that NumPy's files do not know, some of which call themselves floats of NumPy."""
    for name in (n for n, t in TYPES.items() if t.numpy and t.bits >= 8 and t.kind != "pred"):
        dtype = dtype_of(name)
        array = np.arange(4 * dtype.itemsize, dtype=np.uint8).view(dtype)
        np.savez(tmp_path / "a.npz", a=raw_array(array))
        back = np.load(tmp_path / "a.npz")["a"]
        kind = type_name(dtype)
        assert (back.dtype == dtype) if not kind else dtype_of(kind) == dtype, name
        assert back.tobytes() == array.tobytes(), name


def test_pointers_variables_and_clusters(tmp_path: Path) -> None:
    launch = Led(capture="led:2", capture_to=str(tmp_path / "made"))
    launch()
    launch()
    result = again(tmp_path / "made")
    assert result.ok and {c.name for c in result.comparisons} == {"out", "launches"} and not result.uncompared
    text = (tmp_path / "made" / "launch.toml").read_text()
    assert "Left out: 1 piece of memory that it did not touch, 3,000 bytes." in text and "shared = 128" in text
    assert "cluster = [2, 1, 1]" in text and "value = 0.5" in text and str(tmp_path) not in text
    assert sum(f.stat().st_size for f in (tmp_path / "made").iterdir()) < 8000
    job = load_job(tmp_path / "made" / "launch.toml")
    assert not next(a for a in job.named() if a.name == "out").value.any()  # it is written alone: what was there does not matter


def test_a_difference_is_found(tmp_path: Path) -> None:
    Led(capture="led", capture_to=str(tmp_path))()
    text = (tmp_path / "launch.toml").read_text()
    (tmp_path / "launch.toml").write_text(text.replace("value = 0.5", "value = 0.25"))
    result = again(tmp_path)
    assert not result.ok and [c.wrong for c in result.comparisons if c.name == "out"] == [50]


def test_names_reach_the_answers(tmp_path: Path) -> None:
    """`why` and `watch` know the memory of a captured launch by its names."""
    Led(capture="led", capture_to=str(tmp_path))()
    job = load_job(tmp_path / "launch.toml")
    number = [a.name for a in job.arguments].index("out")
    report = run_job(job, why=["out[3]"], watch=[(number, (3,))]).report
    assert "x[35] = 35.0: as the launch found it" in str(report.why[0]) and report.stores[0].value == 105.5


@pytest.mark.parametrize("example", ["hopper_gemm", "hopper_pipeline", "blackwell_gemm", "cuda"])
def test_examples(tmp_path: Path, example: str) -> None:
    """Launches with tensor maps, clusters and wgmma, given to a driver and captured there."""
    job = load_job(EXAMPLES / example / "launch.toml")
    driver = Driver(Settings(device=job.device or "sm_90", capture=":1", capture_to=str(tmp_path)))
    loaded = driver.load(job.ptx.read_text(), "k.ptx")
    function = loaded.function(job.entry or next(iter(loaded.module)))
    values = [resolve(a.value, job.arrays()) for a in job.arguments]
    launch = function.kernel.prepared(job.grid, job.block, values, job.shared, driver.device.name, job.cluster, job.cooperative)
    driver.run(function, launch.shape, launch.arguments.params.tobytes(), launch.arguments.buffers)
    result = again(tmp_path)
    assert result.ok and result.comparisons and not result.uncompared


def test_a_tensor_map_in_memory(tmp_path: Path) -> None:
    """The map lies where a pointer leads, and leads to an array that nothing else does."""
    driver = Driver(Settings(capture="pointed", capture_to=str(tmp_path)))
    x, out = X.copy(), np.zeros((8, 64), np.uint16)
    room = np.zeros(256, np.uint8)
    held = room[-room.ctypes.data % 128 :][:128]
    held[:] = np.frombuffer(mm.TensorMap.tiled(x, (8, 64)).encode(x.ctypes.data), np.uint8)
    regions = [Region(a.ctypes.data, a.nbytes, label) for a, label in ((held, "map"), (x, "x"), (out, "out"))]
    function = driver.load(PTX, "k.ptx").function("pointed")
    driver.launch(function, 1, 256, struct.pack("<2Q", held.ctypes.data, out.ctypes.data), regions)
    result = again(tmp_path)
    assert result.ok and [c.name for c in result.comparisons] == ["out"]
    assert (result.written["out"].view(np.uint16).reshape(8, 64) == X[2:10]).all()


def test_a_fault_is_captured(tmp_path: Path) -> None:
    launch = Led(capture="led", capture_to=str(tmp_path))
    with pytest.raises(ExecutionFault) as fault:
        launch(n=60)
    assert "# It ended in: " in (tmp_path / "launch.toml").read_text()
    with pytest.raises(ExecutionFault) as second:
        again(tmp_path)
    assert second.value.span.line == fault.value.span.line


def test_what_cannot_be_captured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A variable whose own address the kernel is given, and a NaN whose bits a launch file cannot say."""
    launch = Led(capture="led", capture_to=str(tmp_path / "a"))
    launch.x = launch.module.module.image.bytes_of("launches").view(np.float32)
    launch.table[1] = launch.x.ctypes.data
    launch(n=1)
    assert "cannot be captured: the kernel has the address of variable launches" in capsys.readouterr().err
    nan = struct.unpack("<f", bytes.fromhex("0100a07f"))[0]
    Led(capture="led", capture_to=str(tmp_path / "b"))(add=nan)
    assert "is a NaN with bits of its own" in capsys.readouterr().err


def test_the_wish() -> None:
    assert asked("gemm:2") == ("gemm", 2) and asked("gemm") == ("gemm", 1) and asked("a::b") == ("a::b", 1)
    with pytest.raises(ValueError, match="N is 1"):
        asked("gemm:0")
    assert capturing("x:1", "a") is capturing("x:1", "a")


def test_no_path_of_this_machine() -> None:
    ptx = '.file\t1 "/home/me/secret/prog.py"\n.section .debug_info {\n.b8 47\n.b8 104\n}\n.section .debug_str {\n.b8 1\n}\n'
    assert without_paths(ptx) == '.file\t1 "prog.py"\n\n\n\n\n.section .debug_str {\n.b8 1\n}\n'


def test_memory_in_launch_files(tmp_path: Path) -> None:
    """What a launch file must not say of addresses."""
    Led(capture="led", capture_to=str(tmp_path))()
    text = (tmp_path / "launch.toml").read_text()
    first = next(line for line in text.splitlines() if line.startswith("address"))
    for old, new, said in (
        (first, "address = -1", "is -1, not a whole number"),
        ("[[memory]]", "[[memory]]\nname = 'y'\nvalue = 3\naddress = 5\n[[memory]]", "an array has an address, and nothing else"),
        ("[[memory]]", "[[memory]]\nname = 'y'\nnpy = 'y.npy'\n[[memory]]", "[[memory]] needs an address"),
    ):
        (tmp_path / "launch.toml").write_text(text.replace(old, new, 1))
        with pytest.raises(LaunchError) as wrong:
            load_job(tmp_path / "launch.toml")
        assert said in str(wrong.value)
    lines = [line for line in text.splitlines() if line.startswith("address")]
    (tmp_path / "launch.toml").write_text(text.replace(lines[1], lines[0]))
    with pytest.raises(LaunchError, match="begins at"):
        again(tmp_path)


# records --------------------------------------------------------------------------------------------------------------
def done(record: str, replay: str) -> None:
    """The process ends, as far as records go."""
    one = following(record, replay)
    one.finish()
    atexit.unregister(one.finish)
    following.cache_clear()


def test_a_record_says_what_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(tmp_path / "r.json")
    first = Led(record=file)
    first()
    first()
    done(file, "")
    data = json.loads(Path(file).read_text())
    assert data["device"] == "sm_90" and [row.split()[0] for row in data["launches"]] == ["led", "led"]
    same = Led(replay=file)
    same()
    same()
    done("", file)
    assert "replay: 2 launches, all as recorded" in capsys.readouterr().err

    for change, said in (
        (lambda launch: launch(add=1.0), "launch 1, led, is the first that differs: other grid, block or arguments"),
        (lambda launch: (launch.x.__setitem__(3, 7), launch()), "other memory that it reads"),
    ):
        change(Led(replay=file))
        done("", file)
        assert said in capsys.readouterr().err


def test_differences() -> None:
    assert difference(1, "k a b c d", "k a b c d") == ""
    assert difference(2, "void f(int) a b c d", "k a b c d") == "launch 2 is of void f(int); the record has k"
    assert difference(2, "k a b c d", "k a b c e").endswith("is the first that differs: other results")
    assert difference(3, "k a b c d", "") == "launch 3, k, is not in the record"


# programs -------------------------------------------------------------------------------------------------------------
@TRITON
def test_a_program_of_triton(tmp_path: Path) -> None:
    (tmp_path / "prog.py").write_text(KERNEL + 'run("cuda")\nrun("cuda")\n')
    said = command(tmp_path, "exec", "--capture", "add:2", "--capture-to", "bug", "--record", "r.json", "prog.py")
    assert "mmulator: launch 2 of add is in bug/launch.toml" in said
    assert "z: bit-identical to the captured reference: yes (1000 elements)" in command(tmp_path, "run", "bug/launch.toml")
    assert all(str(tmp_path).encode() not in file.read_bytes() for file in (tmp_path / "bug").iterdir())
    assert "add.ptx" in {file.name for file in (tmp_path / "bug").iterdir()}
    assert "all as recorded" in command(tmp_path, "exec", "--replay", "r.json", "prog.py")
    (tmp_path / "other.py").write_text((tmp_path / "prog.py").read_text().replace("torch.ones(1000", "2 * torch.ones(1000"))
    assert "other memory that it reads" in command(tmp_path, "exec", "--replay", "r.json", "other.py", code=1)
    said = command(tmp_path, "exec", "--capture", "add:3", "prog.py")
    assert "nothing was captured: no launch 3 of add; launches: add: 2" in said
    assert "was made with sm_90" in command(tmp_path, "exec", "--device", "sm_80", "--replay", "r.json", "prog.py", code=2)


@pytest.mark.skipif(find_spec("numba") is None or find_spec("numba_cuda") is None, reason="Numba-CUDA is not installed")
def test_a_program_of_numba(tmp_path: Path) -> None:
    (tmp_path / "prog.py").write_text("""import numpy as np
from numba import cuda

@cuda.jit
def double(x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = 2 * x[i]

x = cuda.to_device(np.arange(70, dtype=np.float32))
double[3, 32](x, cuda.device_array_like(x))
""")
    command(tmp_path, "exec", "--capture", "double", "prog.py")
    assert "bit-identical to the captured reference: yes (70 elements)" in command(tmp_path, "run", "capture/launch.toml")


