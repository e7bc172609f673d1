"""Planted bugs: kernels, each with one small change, and the command that finds it (docs/reference/planted.md)."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.support import places

FOLDER = places.ROOT / "tests" / "data" / "planted"


@dataclass(frozen=True)
class Planted:
    """A bug.

    name: as in the table of docs/reference/planted.md.
    kernel: a file of FOLDER or a folder of examples.
    change: (file, text, text that takes its place, once).
    command: of mmulator, with the kernel's file as the last word of `exec`.
    said: words that name the bug; the right kernel does not get them.
    """

    name: str
    kernel: str
    change: tuple[str, str, str]
    command: str
    said: tuple[str, ...]

    @property
    def row(self) -> str:
        """The row of the table."""
        seen = " ... ".join(f"`{words.strip()}`" for words in self.said)
        return f"| {self.name} | `{self.kernel}` | `{self.command}` | {seen} |"

    def write(self, folder: Path, broken: bool) -> None:
        """Write the kernel's files into a folder, right or with the bug."""
        own = places.ROOT / "examples" / self.kernel
        files = own.iterdir() if own.is_dir() else FOLDER.glob(f"{Path(self.kernel).stem}.*")
        for file in files:
            if file.is_file():
                shutil.copy(file, folder)
        launch = folder / "launch.toml"
        if launch.exists():
            text = launch.read_text()
            launch.write_text(text.replace("../../tests", str(places.ROOT / "tests")))
        file, old, new = self.change
        if not (folder / file).exists():  # a kernel of the tests
            shutil.copy(places.ROOT / "tests" / "kernels" / "ptx" / file, folder)
            launch.write_text(launch.read_text().replace(str(places.ROOT / "tests" / "kernels" / "ptx" / file), file))
        text = (folder / file).read_text()
        assert text.count(old) == 1, (self.name, old, text.count(old))
        if broken:
            (folder / file).write_text(text.replace(old, new))


MX = "{c0, c1, c2, c3}, scale_a, {%d, 0}, scale_b, {%d, 0};"
LOAD, MASK = "tl.load(x + row * %s + c, mask=c < %s, other=-float", "columns"
SCALES = "\n    mad.wide.u32 sb"
DOT = "sums = tl.dot(x, y, sums)"
INDEX = "    mul.wide.u32 wide, i, s;\n    shr.u64 wide, wide, 16;\n    cvt.u32.u64 from, wide;\n"
READ = "    bar.sync 0;                             // all have read the parts\n"
THERE = "bar.sync 0;                             // all parts are there"
TILE_A = "cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes may not have written yet"
PLANTED = (
    Planted(
        "swapped fragment registers", "handwritten", ("mma.ptx", "{a0, a1, a2, a3}", "{a0, a2, a1, a3}"),
        "run launch.toml --why C[3,5]", ("mma.ptx:68", "row of A: A[3,0..7], A[11,0..7], A[3,16..23]"),
    ),
    Planted(
        "wrong swizzle", "hopper_pipeline",
        ("launch.toml", '[64, 64], swizzle = "128B" }   #', '[64, 64], swizzle = "none" }   #'),
        "run launch.toml --sanitize", ("B of wgmma", "128-byte swizzle", "brought it with no swizzle [tile-swizzle-differs]"),
    ),
    Planted(
        "descriptor off by one", "hopper_gemm", ("gemm.ptx", "%rd77, 4611686293305294850;", "%rd77, 4611686293305294851;"),
        "run launch.toml --why C[3,5]", ("gemm.ptx:686", "row of A: A[3,0..15], A[3,24..39]"),
    ),
    Planted(
        "missing wait", "blackwell_gemm", ("gemm.ptx", "    @!go bra MULTIPLYING;\n", ""),
        "run launch.toml --sanitize",
        ("no wait for its tcgen05.commit lies between [tensor-read-early]", "gemm.ptx:109"),
    ),
    Planted(
        "wrong scale", "mx.toml", ("mx.ptx", f"add.u32 offset, column, g;{SCALES}", f"mov.u32 offset, column;{SCALES}"),
        "run mx.toml --why C[3,5]", ("scale factors of B: SB[0,0..3], which multiply by",),
    ),
    Planted(
        "stale accumulator", "blackwell_gemm", ("gemm.ptx", "setp.ne.u32 adds, k, 0;", "setp.eq.u32 adds, k, k;"),
        "run launch.toml --sanitize",
        ("tcgen05.mma.cta_group::1.kind::f16 uses cells that nothing has written", "[tensor-unwritten]", "gemm.ptx:75"),
    ),
    Planted(
        "wrong selector", "mx.toml", ("mx.ptx", MX % (2, 2), MX % (1, 2)),
        "run mx.toml --why C[3,5]", ("scale factors of A: SA[3,0..1], SA[3,1], SA[3,3]",),
    ),
    Planted(
        "transposed B", "matmul.py",
        ("matmul.py", "tl.load(b + k[:, None] * N + columns[None, :],", "tl.load(b + columns[None, :] * N + k[:, None],"),
        "exec --why c[3,5] matmul.py", ("(matmul.py:17)", "column of B: b[5,0..95]"),
    ),
    Planted(
        "shuffle lane", "layernorm.toml", ("layernorm.ptx", "other, sum, 4, 31", "other, sum, 8, 31"),
        "run layernorm.toml --why y[0,0]", ("computed from x[0,0..3], x[0,8..11], x[0,16..19]",),
    ),
    Planted(
        "tile off by one", "matmul.py", ("matmul.py", "range(tl.cdiv(K, BK))", "range(1, tl.cdiv(K, BK))"),
        "exec --why c[3,5] matmul.py", ("row of A: a[3,32..95]", "column of B: b[32..95,5]"),
    ),
    Planted(
        "mask too short", "rows.py", ("rows.py", LOAD % (MASK, MASK), LOAD % (MASK, f"{MASK} - 1")),
        "exec --why softmax:y[3,5] rows.py", ("computed from x[3,0..98]\n",),
    ),
    Planted(
        "phase parity", "blackwell_gemm", ("gemm.ptx", "    xor.b32 phase, phase, 1;\n", ""),
        "run launch.toml --sanitize", ("gemm.ptx:75: error: bytes are read that", TILE_A, "change the parity with each round"),
    ),
    Planted(
        "wrong stride", "rows.py", ("rows.py", LOAD % (MASK, MASK), LOAD % ("B", MASK)),
        "exec --keep-going --why softmax:y[1,5] rows.py", ("computed from x[1,28..99], x[2,0..27]\n",),
    ),
    Planted(
        "uninitialised shared memory", "layernorm.toml", ("layernorm.toml", "block = 128", "block = 96"),
        "run layernorm.toml --sanitize",
        ("a value that nobody has written, from bytes that ld.shared.f32 read [uninitialized-store]", "(parts + 12)"),
    ),
    Planted(
        "double-counted K", "handwritten", ("mma.ptx", "add.u64 pa, pa, 32;", "add.u64 pa, pa, 16;"),
        "run launch.toml --why C[3,5]", ("row of A: A[3,0..15], A[3,8..23], A[3,16..31]",),
    ),
    Planted(
        "wrong dtype of accumulation", "matmul.py", ("matmul.py", DOT, "sums += tl.dot(x, y, out_dtype=tl.float16)"),
        "exec --why c[3,5] matmul.py", ("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16(0 = 0.0)", "(matmul.py:17)"),
    ),
    Planted(
        "race", "layernorm.toml", ("layernorm.ptx", READ, ""),
        "run layernorm.toml --sanitize",
        ("layernorm.ptx:62: error: buffer overwritten while it may still be read", "[race-read-write", "layernorm.ptx:60"),
    ),
    Planted(
        "integer overflow of an index", "resize.toml",
        ("resize.ptx", INDEX, "    mul.lo.u32 from, i, s;\n    shr.u32 from, from, 16;\n"),
        "run resize.toml --why y[79999]",
        ("an index overflows: mul.lo.u32 at resize.ptx:22 makes 292495360 of 79999 * 57344 = 4587462656",),
    ),
    Planted(
        "aliasing outputs", "rows.py", ("rows.py", "statistics[0], statistics[1], 100", "statistics[0], statistics[0], 100"),
        "exec --why means[2] rows.py", ("(rows.py:24)",),
    ),
    Planted(
        "divergent barrier", "layernorm.toml", ("layernorm.ptx", THERE, f"@first {THERE}"),
        "run layernorm.toml --sanitize", ("lanes 1 to 31 of warp 0 execute it; lane 0 waits at bar.sync (layernorm.ptx:61)",),
    ),
)  # fmt: skip
