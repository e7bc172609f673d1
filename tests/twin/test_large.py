"""Large products, in tiles of D and parts of k: the exact model's bits, whatever the edges, strides, batches and threads."""

import threading
from typing import Any

import numpy as np
import pytest

from mmulator.matrix.numerics import DotKey
from mmulator.matrix.numerics.profiles import profile_for
from mmulator.matrix.twin import large, matrices, threads
from mmulator.matrix.twin.large import tiles
from mmulator.matrix.twin.matrices import twin_matmul
from tests.support.matrix_model import model_matmul
from tests.support.numerics_cases import operands
from tests.twin.test_twin import KEYS, name_of


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every product in many parts."""
    monkeypatch.setattr(large, "_BYTES", 1)
    monkeypatch.setattr(large, "_ROWS", 16)
    monkeypatch.setattr(large, "_COLUMNS", 64)


def large_matmul(key: DotKey, device: str, A: Any, B: Any, C: Any, most: int = 1, **options: Any) -> Any:
    """`twin_matmul`, as if the product were large."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matrices, "_LARGE", 0)
        return twin_matmul(key, device, A, B, C, threads=most, **options)


@pytest.mark.parametrize(("key", "device"), KEYS, ids=name_of)
def test_parts_of_everything(key: DotKey, device: str, small_parts: None) -> None:
    """Rows, columns and k that fill their tiles, panels and parts, and such that do not; B by rows and by columns."""
    slow = profile_for(key, device).method == "fma"  # the model goes element by element
    shapes = [(1, 8, 3), (2, 5, 1), (17, 129, 2)] if slow else [(1, 8, 4), (35, 131, 3), (16, 127, 2)]
    for seed, (m, n, steps) in enumerate(shapes):
        for names in (("normal", "normal", "normal"), ("special", "normal", "special")):
            (A, B, C), options = operands(key, m, n, steps * key.k, seed, names)
            model = model_matmul(key, device, A, B, C, **options)
            for b in (B, np.asfortranarray(B)):
                for most in (1, 2):
                    np.testing.assert_array_equal(large_matmul(key, device, A, b, C, most, **options), model)


F16 = DotKey("wgmma", "f16", "f16", "f32", "f32", 16)
S8 = DotKey("wgmma", "s8", "s8", "s32", "s32", 32)
B1 = DotKey("mma", "b1", "b1", "s32", "s32", 256, bit_op="xor")
F64 = DotKey("mma", "f64", "f64", "f64", "f64", 4)


@pytest.mark.parametrize("key", [F16, S8, B1, F64], ids=name_of)
def test_every_small_size(key: DotKey, small_parts: None) -> None:
    """1 to 35 rows and columns, as a product of its own and as a part of a large one."""
    (A, B, C), _ = operands(key, 35, 35, 2 * key.k, 3, ("special", "normal", "normal"))
    model = model_matmul(key, "sm_90", A, B, C)
    for size in range(1, 36):
        for m, n in ((size, 35), (35, size), (size, size)):
            a, b, c = A[:m], B[:, :n], C[:m, :n]
            for x, y, z in ((a, b, c), (a.copy(), b.copy(), c.copy())):  # NumPy gives one column of its own any stride
                np.testing.assert_array_equal(large_matmul(key, "sm_90", x, y, z), model[:m, :n])
            np.testing.assert_array_equal(twin_matmul(key, "sm_90", a, b, c), model[:m, :n])


@pytest.mark.parametrize("key", [F16, S8, F64], ids=name_of)
def test_operands_lie_as_they_like(key: DotKey, small_parts: None) -> None:
    m, n, k = 19, 70, 3 * key.k
    (A, B, C), _ = operands(key, m, n, k, 5, ("normal", "normal", "normal"))
    model = model_matmul(key, "sm_90", A, B, C)

    def forms(x: Any) -> list[Any]:
        apart, spaced = (np.repeat(np.repeat(x, r, 0), c, 1) for r, c in ((3, 1), (2, 2)))
        wide = np.zeros((x.shape[0], x.shape[1] + 5), x.dtype)
        wide[:, 3:-2] = x
        return [apart[::3], spaced[::2, ::2], wide[:, 3:-2], np.asfortranarray(x), np.asfortranarray(wide)[:, 3:-2],
                x[::-1, ::-1].copy()[::-1, ::-1]]  # fmt: skip

    for a, b, c in zip(forms(A), reversed(forms(B)), forms(C)):
        np.testing.assert_array_equal(large_matmul(key, "sm_90", a, b, c), model)
    for b in forms(B):
        np.testing.assert_array_equal(large_matmul(key, "sm_90", A, b, C), model)
    windows = np.lib.stride_tricks.sliding_window_view(B.reshape(-1)[: k + n - 1], n)
    expected = model_matmul(key, "sm_90", A, windows.copy(), C)
    np.testing.assert_array_equal(large_matmul(key, "sm_90", A, windows, C), expected)
    same = np.broadcast_to(B[:, :1], B.shape)
    np.testing.assert_array_equal(large_matmul(key, "sm_90", A, same, C), model_matmul(key, "sm_90", A, same.copy(), C))


BATCHES = [
    F16,
    DotKey("wgmma", "f16", "f16", "f32", "f32", 32, sparse=True),
    DotKey("mma", "e4m3", "e2m1", "f32", "f32", 32, kind="mxf8f6f4", scale_vec="1X", stype="ue8m0"),
]


@pytest.mark.parametrize("key", BATCHES, ids=name_of)
@pytest.mark.parametrize("lead", [((5,), ()), ((2, 3), (1, 1)), ((), (4,)), ((2, 1), (3,)), ((1,), (1,))], ids=str)
def test_batches_that_share_an_operand(key: DotKey, lead: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    device = "sm_120" if key.scale_blocks else "sm_90"
    m, n, k = 5, 24, 2 * key.k
    (A, B, _), options = operands(key, m, n, k, 5, ("normal", "normal", "normal"))
    a, b = (np.stack([np.roll(x, s, 0 if key.sparse else 1) for s in range(int(np.prod(shape)))]).reshape(*shape, *x.shape)
            if shape else x for shape, x in zip(lead, (A, B)))  # fmt: skip
    if key.sparse:
        options["indices"] = np.broadcast_to(options["indices"], a.shape)
    batch = np.broadcast_shapes(*lead)
    for shape in ((), batch):
        C = np.random.default_rng(0).standard_normal((*shape, m, n)).astype("f4").view("u4")
        for c in (None, C):
            model = model_matmul(key, device, a, b, c, **options)
            assert model.shape == (*batch, m, n)
            np.testing.assert_array_equal(twin_matmul(key, device, a, b, c, **options), model)
            np.testing.assert_array_equal(large_matmul(key, device, a, b, c, **options), model)


def test_an_operand_changed_in_place_between_calls() -> None:
    (A, B, C), _ = operands(F16, 33, 200, 640, 5, ("normal", "normal", "normal"))
    for at in ((0, 0), (320, 100), (639, 199)):
        B[at] ^= 0x8000
        np.testing.assert_array_equal(twin_matmul(F16, "sm_90", A, B, C), model_matmul(F16, "sm_90", A, B, C))


def test_products_of_several_threads_at_once() -> None:
    cases = [operands(key, 64, 200, 320, seed, ("normal",) * 3)[0] for seed, key in enumerate((F16, S8, F16, S8))]
    models = [model_matmul(key, "sm_90", *case) for key, case in zip((F16, S8, F16, S8), cases)]
    wrong: list[int] = []

    def run(n: int) -> None:
        for _ in range(5):
            if (twin_matmul((F16, S8)[n % 2], "sm_90", *cases[n], threads=2) != models[n]).any():
                wrong.append(n)

    runners = [threading.Thread(target=run, args=(n,)) for n in range(4)]
    for runner in runners:
        runner.start()
    for runner in runners:
        runner.join()
    assert not wrong


@pytest.mark.parametrize("most", [1, 2, 3, 7])
def test_tiles_are_all_of_d_once(most: int) -> None:
    for m, n in ((1, 1), (1, 4096), (4096, 1), (17, 65), (2048, 2048), (513, 1025)):
        seen = np.zeros((m, n), np.uint8)
        for i, rows, j, columns in tiles(m, n, 512, most):
            assert 0 < rows <= 512
            seen[i : i + rows, j : j + columns] += 1
        assert (seen == 1).all()
    assert len(tiles(1, 4096, 512, 2)) >= 4 and len(tiles(2048, 64, 512, 2)) >= 4


def test_a_task_that_fails_ends_the_others_work() -> None:
    done: list[int] = []

    def task(n: int) -> None:
        if n == 3:
            raise IndexError("of a task")
        done.append(n)

    for most in (1, 2, 4):
        done.clear()
        with pytest.raises(IndexError, match="of a task"):
            threads.together([lambda n=n: task(n) for n in range(1000)], most)  # type: ignore[misc]
        assert {0, 1, 2} <= set(done) and len(done) < 999
