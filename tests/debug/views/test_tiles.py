"""Memory as tiles: what a descriptor, a tensor map or a CuTe layout selects is what the machine reads and writes there."""

from typing import Any

import numpy as np
import pytest

import mmulator as mm
from mmulator.errors import OperandError
from mmulator.evaluation.conformance.cases import Wish
from mmulator.evaluation.conformance.subjects import subjects
from mmulator.isa.form import Form
from mmulator.isa.matrix import matrix_forms
from mmulator.matrix.inspect.descriptors.tile import canonical, tile_of
from mmulator.matrix.instruction.wgmma import shared_matrix
from mmulator.matrix.layouts.descriptors import MatrixDescriptor
from mmulator.matrix.layouts.swizzle import SWIZZLES
from mmulator.observation.debug.views import Scene, by_descriptor, by_layout, by_shape, by_tensor_map, matrices, operand
from mmulator.observation.record.steps import WarpPlace
from mmulator.ptx.program.addresses import SHARED_BASE, SLOT_SHARED, SLOT_SHIFT
from tests.support import one_block, ptx_text
from tests.support.scenes import Enough, of_example, of_subject, watched

FORMS = [f for f in matrix_forms("wgmma") if f.op == "mma_async" and f.n == 16 and not f.sparse and f.dtype.bits == 32][::3]


@pytest.mark.parametrize("mode", SWIZZLES)
@pytest.mark.parametrize("form", [pytest.param(f, id=str(f)) for f in FORMS])
def test_descriptors_show_what_wgmma_reads(form: Form, mode: str) -> None:
    """The tiles of A and B when the operation reads them are what the machine's own code makes of descriptor and memory, and
    what the CuTe layout of the descriptor selects."""
    compared = []
    for subject in [s for s in subjects(form) if not s.a_in_registers][:4]:
        words: dict[str, int] = {}

        def look(scene: Scene, words: dict[str, int] = words) -> None:
            if scene.instruction is not None and scene.instruction.form.op == "mma_async":
                words.update({x: scene.value(scene.operands[f"{x}-desc"]) or 0 for x in "ab"})

        def reads(scene: Scene, place: WarpPlace, site: int, words: dict[str, int] = words, subject: Any = subject) -> None:
            image = scene.shared_image()
            for name, rows, element in (("a", form.m, form.atype), ("b", form.n, form.btype)):
                word, major = words[name], bool(subject.fixed.get(f"imm_trans_{name}", 0))
                view = by_descriptor(scene, word, rows, form.k, element.name, major)
                want = shared_matrix(image, SHARED_BASE, word, rows, form.k, element, major)
                assert np.array_equal(view.raw, want) and view.unread is None
                compared.append(name)
                if element.bits >= 8:
                    self_described(scene, name, word, major, view.raw)

        def self_described(scene: Scene, name: str, word: int, major: bool, raw: Any) -> None:
            try:
                layout = canonical(tile_of(form, name, major), MatrixDescriptor.decode(word))
            except OperandError:
                return  # base offsets that no layout says
            element = form.atype if name == "a" else form.btype
            assert np.array_equal(by_layout(scene, str(layout), element=element.name).raw[: raw.shape[0], : raw.shape[1]], raw)

        of_subject(subject, "sm_90a", "sm_90", look, reads, wish=Wish(swizzle=mode))
    assert len(compared) >= 2


@pytest.mark.parametrize("swizzle", ["none", "32B", "64B", "128B"])
def test_boxes_of_tensor_maps(swizzle: str) -> None:
    """A box that has come to shared memory has the elements that it has in global memory, at its coordinates."""
    inner = {"none": 32, "32B": 16, "64B": 32, "128B": 64}[swizzle]
    array = np.arange(96 * 128, dtype=np.float16).reshape(96, 128)
    tensor = mm.TensorMap.tiled(array, (8, inner), swizzle=swizzle)
    text = ptx_text.entry(
        """.shared .align 1024 .b8 tile[2048]; .shared .align 8 .b64 bar; .reg .b64 m; .reg .b32 x, y, b, t; .reg .pred p;
        mov.u32 b, bar; mbarrier.init.shared.b64 [b], 1; fence.proxy.async;
        mov.b64 m, map; cvta.param.u64 m, m; mov.u32 t, tile; mov.u32 x, 8; mov.u32 y, 90;
        mbarrier.arrive.expect_tx.shared.b64 _, [b], """ + str(16 * inner) + """;
        cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [t], [m, {x, y}], [b];
        WAIT: mbarrier.try_wait.parity.shared.b64 p, [b], 0; @!p bra WAIT;
        ld.shared.u32 x, [t];""",
        ".param .align 64 .b8 map[128]", "8.6", "sm_90a",
    )  # fmt: skip
    kernel = mm.Module.load(text)["k"]
    seen = []

    def look(scene: Scene) -> None:
        assert scene.instruction is not None
        if scene.instruction.opcode == "cp":
            source, target = matrices(scene)
            assert source.name == "global memory" and source.unread is not None and source.unread[6:].all()
            assert np.array_equal(source.values[:6], array[90:96, 8 : 8 + inner]) and "128" in source.what
            assert (target.raw == 0).all() and "before the copy" in target.notes[-1]
            seen.append(scene.number("m"))
        if scene.instruction.opcode == "ld" and scene.instruction.form["space"] == "shared":
            landed = by_tensor_map(scene, seen[0], (8, 90), "tile")
            assert np.array_equal(landed.values[:6], array[90:96, 8 : 8 + inner]) and (landed.raw[6:] == 0).all()
            raise Enough

    watched(kernel, 1, 1, [tensor], look)
    assert seen


def test_plain_arrays_of_each_memory() -> None:
    """Shared, global and local memory, sub-byte types, names with offsets, strides; addresses outside are marked."""
    given = np.arange(32, dtype=np.uint32)
    looked = []

    def look(scene: Scene) -> None:
        assert scene.instruction is not None
        if scene.instruction.opcode != "bar":
            return
        assert by_shape(scene, "words", (4, 8), "u32").raw.tolist() == given.reshape(4, 8).tolist()
        assert by_shape(scene, "words+4", (3,), "u32", (9,)).raw.tolist() == [[1, 10, 19]]
        assert by_shape(scene, "in0", (4,), "u32", lane=7).raw.tolist() == [[7, 8, 9, 10]]
        assert by_shape(scene, (SLOT_SHARED << SLOT_SHIFT) + SHARED_BASE, (8,), "u4").raw.tolist() == [[0] * 8]
        assert by_shape(scene, "words+60", (16,), "u4").raw[0, :2].tolist() == [15, 0]
        over = by_shape(scene, "words", (5, 8), "u32")
        assert over.unread is not None and over.unread[4].all() and not over.unread[:4].any() and "?" in over.text()
        assert by_layout(scene, "(4,8):(8,1)", "words", "u32").raw.tolist() == given.reshape(4, 8).tolist()
        with pytest.raises(OperandError, match="no register or variable"):
            scene.number("nothing")
        looked.append(scene.step)

    body = "ld.global.u32 r0, [in0]; mov.u32 r1, words; shl.b32 r2, t, 2; add.u32 r1, r1, r2; st.shared.u32 [r1], r0; bar.sync 0;"
    text = one_block.text(body, 1, top=".shared .align 16 .b32 words[32];\n")
    watched(mm.Module.load(text)["k"], 1, 32, [given, np.zeros((32, 4), np.uint32)], look)
    assert looked


def test_tiles_of_a_pipeline() -> None:
    """In the Hopper pipeline the tile of A that the tensor copy brought is what the first wgmma of the stage reads."""
    boxes: list[Any] = []

    def reads(scene: Scene, place: WarpPlace, site: int) -> None:
        boxes.append((site, scene.shared_image().copy()))
        if len(boxes) > 3:
            raise Enough

    def look(scene: Scene) -> None:
        if scene.instruction is not None and scene.instruction.form.name == "wgmma.mma_async":
            a, b, d = operand(scene, "A"), operand(scene, "B"), operand(scene, "D")
            assert a.shape == (64, 16) and b.shape[0] == 16 and d.shape == (64, b.shape[1])

    of_example("hopper_pipeline", look, reads)
    assert boxes
