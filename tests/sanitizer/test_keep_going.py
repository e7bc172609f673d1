"""A launch that goes on behind accesses that cannot be: in each lane what is there is done, of others zeros or nothing."""

import numpy as np
import pytest

import mmulator as mm
from mmulator.errors import ExecutionFault, LaunchError

LANES, SIZE, ROOM = 32, 64, 256  # bytes of each memory; places of a lane in `out`
SPACES = ("global", "generic", "shared", "local", "const")
TYPES = {"u8": (1, "b32"), "u32": (4, "b32"), "u64": (8, "b64"), "v4.u32": (16, "b32")}


def _kernel() -> tuple[str, list[tuple[str, str]]]:
    """Loads of every space and size, then stores, atomics and copies; each lane's address is memory's plus at[lane]."""
    body, loads = [], []
    for space in SPACES:
        base = "p" if space in ("global", "generic") else "0"
        word = "" if space == "generic" else f".{space}"
        body.append(f"add.u64 a, off, {base if base == 'p' else {'shared': 's', 'local': 'l', 'const': 'c'}[space]};")
        for type, (_, kind) in TYPES.items():
            target = "{w0, w1, w2, w3}" if type[0] == "v" else "r" if kind == "b32" else "d"
            body.append(f"mov.b32 r, 7; mov.b64 d, 7; mov.b32 w0, 7; mov.b32 w3, 7; ld{word}.{type} {target}, [a];")
            value = {"b64": "d"}.get(kind, "r") if type[0] != "v" else "w3"
            body.append(f"cvt.u64.u{kind[1:]} d, {value};" if value != "d" else "")
            body.append(f"st.global.u64 [o+{8 * len(loads)}], d;")
            loads.append((space, type))
    body += [
        "add.u64 a, off, s; bar.warp.sync -1; @q st.shared.u32 [a], 9; bar.warp.sync -1;", "add.u64 a, off, q0;",
        "@q atom.global.add.u32 r, [a], 5; st.global.u32 [o+240], r;", "@q red.global.add.u32 [a+256], 6;",
        "cvt.u64.u32 d, t; shl.b64 d, d, 2; add.u64 d, d, s; add.u64 d, d, 128; add.u64 a, off, p;",
        "cp.async.ca.shared.global [d], [a], 4; cp.async.wait_all; ld.shared.u32 r, [d]; st.global.u32 [o+248], r;",
    ]
    return f""".version 8.0
.target sm_90
.address_size 64
.const .align 16 .b8 table[{SIZE}] = {{{", ".join(str(n) for n in range(1, SIZE + 1))}}};
.visible .entry k(.param .u64 at, .param .u64 data, .param .u64 sums, .param .u64 out)
{{
  .shared .align 16 .b8 tile[{SIZE * 4}]; .local .align 16 .b8 own[{SIZE}];
  .reg .b64 p, q0, o, a, d, off, s, l, c; .reg .b32 r, t, w0, w1, w2, w3; .reg .pred q;
  ld.param.u64 p, [at]; mov.u32 t, %tid.x; mad.wide.u32 p, t, 8, p; ld.global.u64 off, [p]; ld.param.u64 p, [data];
  ld.param.u64 q0, [sums]; ld.param.u64 o, [out]; mad.wide.u32 o, t, {ROOM}, o; setp.lt.u32 q, t, 32;
  cvta.const.u64 a, table; cvta.to.const.u64 c, a; mov.u64 s, tile; mov.u64 l, own; mov.b32 r, 0; mov.b32 w1, 0; mov.b32 w2, 0;
  @!q bra done;
  shl.b32 w0, t, 2; cvt.u64.u32 a, w0; add.u64 a, a, s; add.u32 w3, t, 1; st.shared.u32 [a], w3; st.shared.u32 [a+128], w3;
  {"".join(f"st.local.u64 [own+{n}], {n + 1}; " for n in range(0, SIZE, 8))} bar.warp.sync -1;
  {chr(10).join(body)}
done:
  ret;
}}
""", loads


def test_each_lane_by_itself() -> None:
    text, loads = _kernel()
    chance = np.random.default_rng(3)
    at = chance.choice([-4096, -8, -1, 0, 1, 2, 4, 8, 16, 24, 48, 56, 60, 63, 64, 65, 4096, 1 << 20], LANES).astype(np.int64)
    at[:4] = 0, 16, 48, -16
    data, out = np.arange(1, SIZE + 1, dtype=np.uint8), np.zeros((LANES, ROOM // 8), np.uint64)
    sums = np.zeros(SIZE // 4, np.uint32)
    report = mm.Module.load(text, name="k.ptx")["k"].launch(1, LANES, [at, data, sums, out], keep_going=True)
    shared = np.concatenate([np.arange(1, LANES + 1, dtype=np.uint32)] * 2).view(np.uint8)
    local = np.arange(1, SIZE + 1, 8, dtype=np.uint64).view(np.uint8)
    memory = {"global": data, "generic": data, "const": data, "shared": shared, "local": local}

    def there(space: str, size: int) -> np.ndarray:
        """Lanes that may access so many bytes. The tile has more behind what is used as it."""
        room = SIZE * 4 if space == "shared" else SIZE
        return (at >= 0) & (at + size <= room) & (at % size == 0)

    for n, (space, type) in enumerate(loads):
        size = TYPES[type][0]
        for lane, ok in enumerate(there(space, size)):
            begin = int(at[lane]) + (12 if size == 16 else 0)
            read = memory[space][begin : begin + (4 if size == 16 else size)].tobytes() if ok else b""
            want = int.from_bytes(read, "little")
            assert out[lane, n] == want, (space, type, lane, at[lane], ok)
    ok = there("global", 4)
    before = dict.fromkeys(range(SIZE // 4), 0)
    for lane in range(LANES):
        slot = int(at[lane]) // 4
        assert (out[lane, 30] & 0xFFFFFFFF) == (before[slot] if ok[lane] else 0)
        if ok[lane]:
            before[slot] += 5
        want = int(data[at[lane] : at[lane] + 4].view(np.uint32)[0]) if ok[lane] else 0
        assert (out[lane, 31] & 0xFFFFFFFF) == want, lane  # copied by cp.async
    assert sums.tolist() == [before[n] for n in range(SIZE // 4)]
    rules = {"memory-out-of-bounds", "memory-misaligned", "address-space"}
    behind = [f for f in report.findings if f.rule == "uninitialized-store"]  # a frame of local memory has more than its variable
    assert {f.rule for f in report.findings if f not in behind} == rules
    assert all(f.conflict is not None and f.conflict.instruction.startswith("ld.local") for f in behind)
    assert all("the launch goes on" in f.message for f in report.findings if f.rule in rules)


def test_what_many_lanes_do_together_ends_the_launch() -> None:
    body = ".reg .b32 a, r; mov.u32 a, 4096; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {r}, [a];"
    text = f".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k()\n{{ {body} ret; }}\n"
    with pytest.raises(ExecutionFault, match="out of bounds: ldmatrix"):
        mm.Module.load(text)["k"].launch(1, 32, [], keep_going=True)
    with pytest.raises(LaunchError, match="keep_going is of type str"):
        mm.Module.load(text)["k"].launch(1, 32, [], keep_going="yes")  # type: ignore[arg-type]
