"""Why the first element that a comparison rejects has its value, without anybody naming it: in programs and in pytest."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mmulator.doors.asserts import first_apart
from mmulator.observation.record.launches import rejections as kept
from mmulator.observation.record.launches.rejections import KeptPiece, find_rows
from mmulator.observation.record.launches.snapshot import MemorySnapshot
from tests.support import forks

TRITON = pytest.mark.skipif(not forks.THERE, reason="Triton or torch is not installed")
KERNELS = """import numpy as np, torch, triton, triton.language as tl

@triton.jit
def add(x, y, z, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(z + at, tl.load(x + at, mask=at < n - 1, other=0.0) + tl.load(y + at, mask=at < n), mask=at < n)

@triton.jit
def scale(z, w, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(w + at, tl.load(z + at, mask=at < n) * 0.5, mask=at < n)

def run(dtype=torch.float32):
    torch.manual_seed(1)
    x, y = (torch.randn(1000, device="cuda", dtype=dtype) for _ in range(2))
    z, w = torch.empty_like(x), torch.empty_like(x)
    add[(8,)](x, y, z, 1000, 128)
    scale[(8,)](z, w, 1000, 128)
    return w, (x + y) * 0.5

"""
WAYS = {  # a comparison that fails, and the index that is rejected
    "torch.testing.assert_close(w, want)": (999,),
    "torch.testing.assert_close(w.view(20, 50).t()[10:], want.view(20, 50).t()[10:])": (39, 19),
    "torch.testing.assert_close(w[500:].cpu(), want[500:].cpu())": (499,),
    "torch.testing.assert_close(w.clone(), want)": (999,),
    "torch.testing.assert_close(w.double().cpu().view(20, 50)[:, 10:].clone(), want.double().view(20, 50)[:, 10:].cpu())":
        (19, 39),
    "torch.testing.assert_close(w.view(20, 50).t().contiguous().cpu(), want.view(20, 50).t().cpu())": (49, 19),
    "torch.testing.assert_close([w], [want])": (999,),
    "np.testing.assert_allclose(w.cpu().numpy(), want.cpu().numpy(), rtol=1e-5)": (999,),
    "np.testing.assert_array_equal(want.cpu().numpy(), w.cpu().numpy())": (999,),
    "assert torch.allclose(w, want)": (999,),
    "assert np.allclose(w.cpu().numpy(), want.cpu().numpy())": (999,),
}


def command(folder: Path, *words: str) -> str:
    ran = forks.run(["-m", *words], folder)
    return ran.stdout + ran.stderr


@TRITON
def test_what_asserts_of_tests_reject(tmp_path: Path) -> None:
    """Views, slices, copies to the host, other types and the other order of arguments lead to the launch that stored the element,
    and from it to the launch before; a value that was computed on the host does not, and says so."""
    body = "\n".join(f"def test_{n}():\n    w, want = run()\n    {way}\n" for n, way in enumerate(WAYS))
    half = "def test_half():\n    w, want = (x.cpu().float() for x in run(torch.half))\n    torch.testing.assert_close(w, want)\n"
    other = "def test_other():\n    w, want = run()\n    torch.testing.assert_close(w.cpu() + 1, want.cpu() + 1)\n"
    plain = "def test_plain():\n    w, want = run()\n    assert (w == want).all()\n"
    right = "def test_right():\n    w, want = run()\n    torch.testing.assert_close(w[:999], want[:999])\n"
    (tmp_path / "test_it.py").write_text(KERNELS + "\n".join((body, half, other, plain, right)))
    said = command(tmp_path, "pytest", "--mmulator", "-n0", "-pno:cacheprovider", "--tb=short", "test_it.py", "--why")
    sections = dict(re.findall(r"_+ (test_\w+) _+\n(.*?)(?=\n_+ test_|\n=+ )", said, re.S))
    assert "1 passed" in said and len(sections) >= len(WAYS) + 3, said
    for n, (way, index) in enumerate(WAYS.items()):
        section = sections[f"test_{n}"]
        name = re.search(r"(?:torch|np)(?:\.\w+)+(?=\()", way)[0].replace("np.", "numpy.")  # type: ignore[index]
        assert f"{name} rejects [{', '.join(map(str, index))}], which launch 2, scale, stored\nwhy w[999]" in section, section
        assert "z[999]: stored by launch 1: --why 'add:z[999]@1'" in section and f"beside {name}: " in section, section
    assert "which launch 2, scale, stored\nwhy w[999]" in sections["test_half"]
    assert "no launch that is kept stored it, nor" in sections["test_other"]
    assert "the assert failed: no comparison of torch.testing" in sections["test_plain"] and "test_right" not in sections


@TRITON
def test_what_an_assert_of_a_program_rejects(tmp_path: Path) -> None:
    """As the program ends, with a page; the next question answers where the value came from; a right program says so."""
    (tmp_path / "prog.py").write_text(KERNELS + "w, want = run()\ntorch.testing.assert_close(w, want)\n")
    said = command(tmp_path, "mmulator", "exec", "--why", "auto", "--why-to", "why.html", "prog.py")
    assert "AssertionError" in said and "which launch 2, scale, stored" in said
    assert "w[999]" in (tmp_path / "why.html").read_text()
    said = command(tmp_path, "mmulator", "exec", "--why", "add:z[999]@1", "prog.py")
    assert "was predicated off" in said and "setp.lt.s32 999, 999" in said.replace("\n            ", " ")
    (tmp_path / "prog.py").write_text(KERNELS + "w, want = run()\ntorch.testing.assert_close(w[:9], want[:9])\n")
    assert "why auto: no comparison rejected an element, behind 2 launches" in command(
        tmp_path, "mmulator", "exec", "--why", "auto", "prog.py"
    )


PRODUCT = """import sys, torch, triton, triton.language as tl

@triton.jit
def product(a, b, c, K, LESS: tl.constexpr, N: tl.constexpr):
    at, total = tl.arange(0, N), tl.zeros((N, N), tl.float32)
    for k in range(0, K - LESS, 32):
        ks = k + tl.arange(0, 32)
        total = tl.dot(tl.load(a + at[:, None] * K + ks[None, :]), tl.load(b + ks[:, None] * N + at[None, :]), total)
    tl.store(c + at[:, None] * N + at[None, :], total.to(tl.float16))

torch.manual_seed(2)
a, b, c = torch.randn(32, 128, device="cuda"), torch.randn(128, 32, device="cuda"), torch.empty(32, 32, device="cuda").half()
product[(1,)](a, b, c, 128, int(sys.argv[1]), 32)
torch.testing.assert_close(c, (a @ b).half())
"""


@TRITON
@pytest.mark.parametrize(
    ("less", "wanted"),
    [
        (0, ["13 bits of a and b are cut: f32 is read as tf32, which makes", "input_precision='ieee'", "own rounding"]),
        (32, ["differs: the reference is a[", "not multiplied here: a[", "96..127] by b[96..127,"]),
    ],
)
def test_what_explains_a_product_stands_first(less: int, wanted: list[str], tmp_path: Path) -> None:
    """Operands that are cut; or a row's end that the kernel leaves out, in pages that it did not touch."""
    (tmp_path / "prog.py").write_text(PRODUCT)
    said = command(tmp_path, "mmulator", "exec", "--why", "auto", "prog.py", str(less))
    said = " ".join(said.split())
    assert all(part in said for part in wanted), said
    assert said.index(" differs: ") < said.index("<- st.global")


# parts ------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("step", [10, 12, 40])
def test_rows_are_found_at_equal_distances(step: int) -> None:
    rng = np.random.default_rng(step)
    rows = rng.integers(0, 1000, (5, 10)).astype(np.uint32)
    room = rng.integers(0, 1000, 4096).astype(np.uint32)
    for n, row in enumerate(rows):
        room[100 + n * step : 110 + n * step] = row
    assert find_rows(room.tobytes(), rows) == (400, 4 * step)
    rows[3, 3] += 1
    assert find_rows(room.tobytes(), rows) is None
    assert find_rows(b"\0" + room.tobytes(), room[100:110].reshape(1, -1)) is None  # at no address of a word


def test_the_first_element_apart() -> None:
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    b = a.copy()
    assert first_apart(a, b, 0, 0) is None
    b[1, 2], b[2, 1] = 6.5, np.nan
    assert first_apart(a, b, 0, 0) == (1, 2) and first_apart(a, b, 0.1, 0) == (2, 1)
    a[2, 1] = np.nan
    assert first_apart(a, b, 0.1, 0) is None and first_apart(a, b, 0, 0) == (1, 2)
    a[0, 0], b[0, 0] = np.inf, -np.inf
    assert first_apart(a, b, 0.1, 0) == (0, 0)


def test_memory_that_a_launch_did_not_touch_is_kept_where_it_is_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference finds elements that a product cut short did not read, also of an array larger than the limit."""
    monkeypatch.setattr(kept, "WHOLE", 3 * kept.PAGE)

    def piece(start: int, pages: int, read: int) -> MemorySnapshot:
        some = np.arange(pages * kept.PAGE - 7) < read * kept.PAGE
        return MemorySnapshot("x", start, np.ones(len(some), np.uint8), False, some)

    seen: Any = SimpleNamespace(pieces=[piece(0, 9, 2), piece(1 << 20, 90, 88), piece(2 << 20, 4, 3), piece(3 << 20, 3, 3)])
    found = list(kept._kept(seen))
    assert [p.pages.tolist() for p in found] == [[0, 1], [*range(90)], [*range(4)], [*range(3)]]
    assert found[1].before[88].all() and found[1].before[89].sum() == kept.PAGE - 7


def test_launches_are_kept_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MOST", 100_000)
    keeping = kept.Keeping(6)

    class Piece(KeptPiece):
        nbytes = property(lambda self: 30_000)

    def pieces(seen: Any) -> list[KeptPiece]:
        empty = np.zeros((0, kept.PAGE), np.uint8)
        return [Piece("x", 0, 0, False, np.zeros(0, np.int64), empty, empty, empty)]

    monkeypatch.setattr(kept, "_kept", pieces)
    seen: Any = SimpleNamespace(launch=None, arrays=())
    for _ in range(9):
        keeping.take(kept.How(), seen, None)
    assert [launch.number for launch in keeping.launches] == [7, 8, 9] and keeping.count == 9
    keeping.explain("np.allclose", (3,), None, 1.0)
    assert "kept are launches 7 to 9" in str(keeping.rejected[0])


GAPS = KERNELS + """@triton.jit
def most(y, x, n, B: tl.constexpr):
    r, at = tl.program_id(0), tl.arange(0, B)
    tl.store(y + r, tl.max(tl.load(x + r * n + at, mask=at < n, other=0.0), 0))

torch.manual_seed(3)
x, y = torch.rand(4, 160, device="cuda")[:, :100], torch.zeros(4, device="cuda")
x[0, 3] = float("nan")
most[(4,)](y, x, 100, 128)
"""


@TRITON
@pytest.mark.parametrize("compared, said", [
    ("torch.testing.assert_close(y[1:], x[1:].amax(1))", "x[0,100..159]: no element of x, a view of shape (4, 100) with strides "
     "(640, 4) bytes: the kernel reads between its rows"),
    ("z = torch.zeros(5000, device='cuda'); scale[(8,)](z, z, 1000, 128); torch.testing.assert_close(z, torch.arange(5000.0,"
     "device='cuda').clamp(max=4000) // 4000)", "rejects [4000], which launch 2, scale, stored why z[4000]: no thread of the "
     "launch stored it note: no store came to its address: no thread computes it, or all that do branch around the store; the "
     "grid is (8, 1, 1) blocks of (128, 1, 1) threads"),
    ("y[1] = float('nan'); scale[(1,)](y, y, 4, 32); torch.testing.assert_close(y.sum(), torch.tensor(1.0, device='cuda'))",
     "why z[1] = nan (bits 0x7fffffff): NaN since z[1] = nan, as the launch found it"),
])  # fmt: skip
def test_a_view_read_between_its_rows_and_a_nan_in_what_the_host_summed(tmp_path: Path, compared: str, said: str) -> None:
    (tmp_path / "prog.py").write_text(GAPS + compared + "\n")
    assert said in " ".join(command(tmp_path, "mmulator", "exec", "--why", "auto", "prog.py").split())
