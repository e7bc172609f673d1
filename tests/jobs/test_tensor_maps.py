"""Tensor maps in launch files, options and variables of a module: a kernel copies a box, and what it copied is compared."""

from pathlib import Path

import numpy as np
import pytest

import mmulator as mm
from mmulator.errors import LaunchError
from mmulator.host.jobs.job import load_job, parse_argument, run_job
from mmulator.host.jobs.maps import MapOf, resolve

# A box of 8 x 64 elements of 16 bits from row 2 on; the map is a parameter or a variable.
_HEAD = """
.version 8.0
.target sm_90
.address_size 64
.global .align 64 .b8 stored[128];
.const .align 64 .b8 fixed[256];
"""
_KERNEL = """
.visible .entry {name}({parameters}.param .u64 out)
{{
    .shared .align 1024 .b8 box[1024];
    .shared .align 8 .b64 bar;
    .reg .pred %p;
    .reg .b32 %at, %x;
    .reg .b64 %map, %out, %to;
    {take}
    mov.u32 %at, %tid.x;
    setp.ne.u32 %p, %at, 0;
    @%p bra COPIED;
    mbarrier.init.shared.b64 [bar], 1;
    mbarrier.arrive.expect_tx.shared.b64 _, [bar], 1024;
    cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [box], [%map, {{0, 2}}], [bar];
COPIED:
    bar.sync 0;
WAIT:
    mbarrier.try_wait.parity.shared.b64 %p, [bar], 0;
    @!%p bra WAIT;
    shl.b32 %at, %at, 2;
    cvt.u64.u32 %to, %at;
    mov.u32 %x, box;
    add.u32 %at, %at, %x;
    ld.shared.b32 %x, [%at];
    ld.param.u64 %out, [out];
    add.u64 %out, %out, %to;
    st.global.b32 [%out], %x;
    ret;
}}
"""
_TAKE = {
    "given": (".param .align 64 .b8 map[128], ", "mov.b64 %map, map; cvta.param.u64 %map, %map;"),
    "pointed": (".param .u64 map, ", "ld.param.u64 %map, [map];"),
    "stored_one": ("", "mov.b64 %map, stored; cvta.global.u64 %map, %map;"),
    "fixed_second": ("", "mov.b64 %map, fixed; cvta.const.u64 %map, %map; add.u64 %map, %map, 128;"),
}
PTX = _HEAD + "".join(_KERNEL.format(name=n, parameters=p, take=t) for n, (p, t) in _TAKE.items())
X = np.arange(16 * 64, dtype=np.uint16).reshape(16, 64)


@pytest.fixture
def module(tmp_path: Path) -> mm.Module:
    (tmp_path / "k.ptx").write_text(PTX)
    return mm.Module.load(tmp_path / "k.ptx")


def test_variables_are_tensor_maps(module: mm.Module) -> None:
    y = X + 5000
    module.variables["stored"] = mm.TensorMap.tiled(X, (8, 64))
    module.variables["fixed"] = [mm.TensorMap.tiled(X, (8, 64)), mm.TensorMap.tiled(y, (8, 64))]
    for turn in range(3):  # a map is written anew at each launch
        out, other = np.zeros((8, 64), np.uint16), np.zeros(1000 * turn + 1, np.uint8)
        module["stored_one"].launch(1, 256, [out])
        assert (out == X[2:10]).all()
        module["given"].launch(1, 256, [mm.TensorMap.tiled(y, (8, 64)), out])
        assert (out == y[2:10]).all()
        module["fixed_second"].launch(1, 256, [out])
        assert (out == y[2:10]).all()
        assert not other.any()
    module.variables["stored"] = bytes(128)  # a map no more
    assert list(module.variables.maps) == ["fixed"]
    for wrong in (mm.TensorMap.tiled(X, (8, 64)), [mm.TensorMap.tiled(X, (8, 64))] * 3):
        with pytest.raises(LaunchError, match="128 bytes each"):
            module.variables["fixed"] = wrong
    with pytest.raises(LaunchError, match="no array"):
        module.variables["stored"] = mm.TensorMap.decode(mm.TensorMap.tiled(X, (8, 64)).encode(4096))


_ARRAY = 'type = "u16"\nshape = [16, 64]\nrandom = { seed = 3, low = 0, high = 60000 }\n'
FILES = {
    "an array of its own": ("given", f'[[arg]]\nname = "A"\n{_ARRAY}tensormap = {{ box = [8, 64] }}\n'),
    "a pointer to a map": ("pointed", f'[[arg]]\nname = "A"\n{_ARRAY}tensormap = {{ box = [8, 64], l2_promotion = "128B" }}\n'),
    "a variable": ("stored_one", f"[variables.stored]\n{_ARRAY}tensormap = {{ box = [8, 64] }}\n"),
}


@pytest.mark.parametrize("which", FILES)
def test_launch_files_have_maps(module: mm.Module, tmp_path: Path, which: str) -> None:
    entry, text = FILES[which]
    path = tmp_path / "launch.toml"
    out = '[[arg]]\nname = "out"\ntype = "u16"\nshape = [8, 64]\nzeros = true\n'
    path.write_text(f'ptx = "k.ptx"\nentry = "{entry}"\ngrid = 1\nblock = 256\n' + (
        out + text if text.startswith("[variables") else text + out))  # fmt: skip
    result = run_job(load_job(path))
    x = np.random.default_rng(3).integers(0, 60000, (16, 64)).astype(np.uint16)
    assert (result.written["out"] == x[2:10]).all()
    assert list(result.written) == ["out"] or which == "a variable"


def test_a_map_of_another_argument(module: mm.Module, tmp_path: Path) -> None:
    """The array of the output is what the map is of, too."""
    path = tmp_path / "launch.toml"
    path.write_text(
        'ptx = "k.ptx"\nentry = "given"\ngrid = 1\nblock = 256\n'
        '[[arg]]\ntensormap = { of = "B", box = [8, 64], swizzle = "128B" }\n'
        '[[arg]]\nname = "B"\ntype = "u16"\nshape = [16, 64]\nrandom = { seed = 1, low = 0, high = 9 }\n'
    )
    x = np.random.default_rng(1).integers(0, 9, (16, 64)).astype(np.uint16)
    result = run_job(load_job(path))
    assert (result.written["B"][0] == x[2]).all()
    assert (result.written["B"][1, :8] == x[3, 8:16]).all()
    assert (result.written["B"][8:] == x[8:]).all()


def test_options_have_maps(module: mm.Module) -> None:
    a = parse_argument("A=map:8x64,swizzle=128B,oob_fill=zero:random:u16:16x64:7", 0)
    assert (a.name, repr(a.value)) == ("A", "TensorMap.tiled(u16 [16 x 64], box [8 x 64], swizzle 128B)")
    assert [p.name for p in a.pointed] == ["A"]
    images = parse_argument("map:lower=-1x-1,upper=-1x-1,channels=64,pixels=9:out:f16:2x6x6x64", 3)
    assert (images.name, images.value.lower, images.value.box) == ("arg3", (-1, -1), (9, 64))
    assert images.pointed[0].is_output


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("map:8x64:5", "a map is of an array"),
        ("map:8x64,fill=nan:out:f16:16x64", "unknown key 'fill'"),
        ("map:swizzle=128B:out:f16:16x64", "a tensormap needs box"),
        ("map:8x64,pixels=4:out:f16:16x64", "a tensormap needs lower, upper, channels, pixels"),
        ("map:8,x:out:f16:16x64", "box is said twice"),
        ("map:8xx:out:f16:16x64", "box is '8xx'"),
        ("map:8x128,swizzle=128B:out:f16:16x128", "with swizzle 128B a row has at most 128"),
    ],
)
def test_options_that_are_no_map_are_named(text: str, said: str) -> None:
    with pytest.raises(LaunchError, match=said):
        parse_argument(text, 0)


def test_a_map_of_no_array_says_what_there_is() -> None:
    for arrays, hint in (({"B": np.zeros(1)}, "there are B"), ({}, "no argument is an array: such as")):
        with pytest.raises(LaunchError) as caught:
            resolve(MapOf("A", {"box": (8, 64)}, "--arg A"), arrays)
        assert hint in (caught.value.hint or "")


def test_launch_files_that_have_no_map_are_named(module: mm.Module, tmp_path: Path) -> None:
    path = tmp_path / "launch.toml"
    for table, said in (
        ('tensormap = { of = "C", box = [8, 64] }', "no array argument is called 'C'"),
        ('value = 3\ntensormap = { box = [8, 64] }', "a tensormap is of an array"),
        ('value = 3\ntensormap = { of = "C", box = [8, 64] }', "give one"),
        ("tensormap = 3", "tensormap is a table"),
        (f"{_ARRAY}tensormap = {{ box = [8.5, 64] }}", "an integer is needed"),
        (f"{_ARRAY}tensormap = {{ box = [8, 64], swizzle = 128 }}", "swizzle is 128"),
    ):
        path.write_text(f'ptx = "k.ptx"\nentry = "given"\ngrid = 1\nblock = 256\n[[arg]]\n{table}\n[[arg]]\n{_ARRAY}')
        with pytest.raises(LaunchError, match=said):
            run_job(load_job(path))
