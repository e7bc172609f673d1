"""Kernels of one tcgen05.mma: operands are copied to shared and tensor memory as given, and all of D's columns are read back."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from mmulator import Kernel, Module, Report
from mmulator.matrix.layouts.descriptors import canonical
from mmulator.matrix.layouts.instruction_descriptor import InstructionDescriptor, encode
from mmulator.matrix.layouts.swizzle import SWIZZLES5
from mmulator.matrix.layouts.tensor_memory import layout_id, place

LANES = 128
A_AT, B_AT, BARRIER, ADDRESS = 1024, 1024 + (64 << 10), 0, 8  # bytes of shared memory
SHARED = B_AT + (64 << 10)


@dataclass
class Product:
    """One tcgen05.mma of a CTA, or of a pair.

    text: the instruction with its modifiers, `tcgen05.mma.cta_group::1.kind::f16`.
    d: what its instruction descriptor says.
    a, b: bytes [CTA][...] of A and B in shared memory.
    a_desc, b_desc: their matrix descriptors, to which the address of A or B is added.
    in_cells: where A is in tensor memory, or None.
    metadata, scales: columns of the metadata, and of the scale factors of A and B.
    adds: enable-input-d. behind: disable-output-lane. after: what stands behind enable-input-d.
    instead: other instructions in place of the product.
    """

    text: str
    d: InstructionDescriptor
    a: np.ndarray
    b: np.ndarray
    a_desc: int
    b_desc: int
    in_cells: int | None = None
    metadata: int = 0
    scales: tuple[int, int] | None = None
    adds: bool = True
    behind: tuple[int, ...] = ()
    after: str = ""
    instead: str = ""
    target: str = "sm_100a"


def _store(register: str, column: int, count: int, offset: int) -> str:
    """Load `count` words of a thread's row from the image, and store them to tensor memory."""
    names = [f"%x{n}" for n in range(count)]
    loads = "".join(f"  ld.global.u32 {name}, [%image + {offset + 4 * n}];\n" for n, name in enumerate(names))
    return loads + f"  tcgen05.st.sync.aligned.32x32b.x{count}.b32 [{register} + {column}], {{{', '.join(names)}}};\n"


@cache
def kernel(
    text: str, columns: int, in_cells: bool, sparse: bool, scaled: bool, behind: tuple[int, ...], after: str, instead: str,
    target: str,
) -> Kernel:  # fmt: skip
    """The kernel: run(a, b, image, out, ...), each with one part for each CTA; image and out are [CTA][lane][columns]."""
    group = 2 if "cta_group::2" in text else 1
    moves = "".join(_store("%lane", column, 32, 4 * column) for column in range(0, columns, 32))
    names = ", ".join(f"%x{n}" for n in range(32))
    back = "".join(
        f"  tcgen05.ld.sync.aligned.32x32b.x32.b32 {{{names}}}, [%lane + {column}];\n  tcgen05.wait::ld.sync.aligned;\n"
        + "".join(f"  st.global.u32 [%out + {4 * (column + n)}], %x{n};\n" for n in range(32))
        for column in range(0, columns, 32)
    )
    a = "[%ta]" if in_cells else "%da"
    operands = ["[%td]", a, "%db"]
    if sparse:
        operands.append("[%tm]")
    operands.append("%word")
    if scaled:
        operands += ["[%sa]", "[%sb]"]
    masks = ", ".join(f"%x{n}" for n in range(len(behind)))
    moves += "".join(f"  mov.u32 %x{n}, {word:#x};\n" for n, word in enumerate(behind))
    words = ", ".join([*operands, *([f"{{{masks}}}"] if behind else []), "%adds", *([after] if after else [])])
    cluster = ".explicitcluster\n.reqnctapercluster 2, 1, 1\n" if group == 2 else ""
    meet = "  barrier.cluster.arrive.aligned;\n  barrier.cluster.wait.aligned;\n" if group == 2 else "  bar.sync 0;\n"
    commit = (
        "tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%bar], 3;" if group == 2
        else "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%bar];"
    )  # fmt: skip
    lead = "  mov.u32 %r, %cluster_ctarank;\n  setp.ne.u32 %q, %r, 0;\n  @%q bra DONE;\n" if group == 2 else ""
    source = f""".version 8.8
.target {target}
.address_size 64
.extern .shared .align 1024 .b8 shared[];
.visible .entry run(.param .u64 a, .param .u64 b, .param .u64 image, .param .u64 out,
  .param .u32 a_bytes, .param .u32 b_bytes, .param .u64 da, .param .u64 db, .param .u32 ta, .param .u32 tm, .param .u32 sa,
  .param .u32 sb, .param .u32 word, .param .u32 adds)
{cluster}{{
  .reg .b64 %a, %b, %image, %out, %da, %db, %o; .reg .b32 %as, %bs;
  .reg .b32 %t, %n, %r, %w, %base, %lane, %bar, %td, %ta, %tm, %sa, %sb, %word;
  .reg .b32 %x<32>; .reg .pred %p, %q, %adds;
  ld.param.u64 %a, [a]; ld.param.u64 %b, [b]; ld.param.u64 %image, [image]; ld.param.u64 %out, [out];
  ld.param.u32 %as, [a_bytes]; ld.param.u32 %bs, [b_bytes];
  mov.u32 %t, %tid.x; mov.u32 %r, %ctaid.x; mov.u32 %base, shared;
  mul.wide.u32 %o, %r, %as; add.u64 %a, %a, %o;
  mul.wide.u32 %o, %r, %bs; add.u64 %b, %b, %o;
  mad.lo.u32 %n, %r, {LANES}, %t; mul.wide.u32 %o, %n, {4 * columns}; add.u64 %image, %image, %o; add.u64 %out, %out, %o;
  add.u32 %bar, %base, {BARRIER};
  shr.u32 %w, %t, 5; setp.ne.u32 %p, %w, 0; @%p bra ALLOCATED;
  add.u32 %n, %base, {ADDRESS};
  tcgen05.alloc.cta_group::{group}.sync.aligned.shared::cta.b32 [%n], {columns};
  tcgen05.relinquish_alloc_permit.cta_group::{group}.sync.aligned;
ALLOCATED: shr.u32 %as, %as, 2; shr.u32 %bs, %bs, 2;
  mov.u32 %n, %t;
A: setp.ge.u32 %p, %n, %as; @%p bra HAVE_A;
  mul.wide.u32 %o, %n, 4; add.u64 %o, %o, %a; ld.global.u32 %r, [%o];
  mad.lo.u32 %w, %n, 4, %base; st.shared.u32 [%w + {A_AT}], %r; add.u32 %n, %n, {LANES}; bra A;
HAVE_A: mov.u32 %n, %t;
B: setp.ge.u32 %p, %n, %bs; @%p bra HAVE_B;
  mul.wide.u32 %o, %n, 4; add.u64 %o, %o, %b; ld.global.u32 %r, [%o];
  mad.lo.u32 %w, %n, 4, %base; st.shared.u32 [%w + {B_AT}], %r; add.u32 %n, %n, {LANES}; bra B;
HAVE_B:
  setp.ne.u32 %p, %t, 0; @%p bra MADE;
  mbarrier.init.shared.b64 [%bar], 1;
  fence.mbarrier_init.release.cluster;
MADE:
  fence.proxy.async;
  tcgen05.fence::before_thread_sync;
{meet}  tcgen05.fence::after_thread_sync;
  ld.shared.u32 %td, [%base + {ADDRESS}];
  and.b32 %lane, %t, 96; shl.b32 %lane, %lane, 16; add.u32 %lane, %lane, %td;
{moves}  tcgen05.wait::st.sync.aligned;
  tcgen05.fence::before_thread_sync;
{meet}  tcgen05.fence::after_thread_sync;
  setp.ne.u32 %p, %t, 0; @%p bra DONE;
{lead}  add.u32 %n, %base, {A_AT}; shr.u32 %n, %n, 4; cvt.u64.u32 %da, %n; ld.param.u64 %o, [da]; add.u64 %da, %da, %o;
  add.u32 %n, %base, {B_AT}; shr.u32 %n, %n, 4; cvt.u64.u32 %db, %n; ld.param.u64 %o, [db]; add.u64 %db, %db, %o;
  ld.param.u32 %ta, [ta]; ld.param.u32 %tm, [tm]; ld.param.u32 %sa, [sa]; ld.param.u32 %sb, [sb];
  add.u32 %ta, %td, %ta; add.u32 %tm, %td, %tm; add.u32 %sa, %td, %sa; add.u32 %sb, %td, %sb;
  ld.param.u32 %word, [word]; ld.param.u32 %n, [adds]; setp.ne.u32 %adds, %n, 0;
  {instead or f"{text} {words};"}
  {commit}
DONE:
  mbarrier.try_wait.parity.shared.b64 %p, [%bar], 0; @!%p bra DONE;
  tcgen05.fence::after_thread_sync;
{back}{meet}  shr.u32 %w, %t, 5; setp.ne.u32 %p, %w, 0; @%p bra OVER;
  tcgen05.dealloc.cta_group::{group}.sync.aligned.b32 %td, {columns};
OVER: ret;
}}
"""
    return Module.load(source)["run"]


def run(p: Product, image: np.ndarray, **how: Any) -> np.ndarray:
    """All words of tensor memory behind the product: uint32 [CTA][lane][column]. image: those before it."""
    return launched(p, image, **how)[0]


def launched(p: Product, image: np.ndarray, **how: Any) -> tuple[np.ndarray, Report]:
    """What `run` gives, and the report."""
    given, arguments, out = prepared(p, image)
    report = given.launch(len(image), LANES, arguments, shared=SHARED, **how)
    return out, report


def prepared(p: Product, image: np.ndarray) -> tuple[Kernel, list[Any], np.ndarray]:
    """(kernel, its arguments, the one that the words of tensor memory go to)."""
    out = np.zeros_like(image)
    scaled = p.scales is not None
    given = kernel(p.text, image.shape[-1], p.in_cells is not None, p.d.sparse, scaled, p.behind, p.after, p.instead, p.target)
    words = [np.uint32(x) for x in (p.in_cells or 0, p.metadata, *(p.scales or (0, 0)), encode(p.d), p.adds)]
    sizes = np.uint32(p.a.shape[1]), np.uint32(p.b.shape[1])
    arguments = [p.a, p.b, image, out, *sizes, np.uint64(p.a_desc), np.uint64(p.b_desc), *words]
    return given, arguments, out


def shared_image(lines: np.ndarray, mode: str, across: bool) -> tuple[np.ndarray, int]:
    """(bytes, descriptor) of a matrix in shared memory. lines: bytes [line][byte], along k, or if `across` along M or N."""
    swizzle = SWIZZLES5[mode]
    count, length = lines.shape
    high, width = swizzle.lines, swizzle.width
    stride, leading = high * width, -(-count // high) * high * width
    if across and mode == "none":
        stride, leading = leading, stride
    line, byte = np.divmod(np.arange(count * length), length)
    offset = swizzle(canonical(line, byte, width, leading, stride, across, high))
    image = np.zeros(-(-int(offset.max() + 1) // 1024) * 1024, np.uint8)
    image[offset] = lines.reshape(-1)
    code = {"none": 0, "128B_atom_32B": 1, "128B": 2, "64B": 4, "32B": 6}[mode]
    return image, leading >> 4 << 16 | stride >> 4 << 32 | 1 << 46 | code << 61


def cells(d: InstructionDescriptor) -> tuple[np.ndarray, np.ndarray]:
    """(lane, column) of each element of one CTA's part of D."""
    layout = layout_id(d.m, d.pair, d.ws, d.sparse)
    m, n = np.meshgrid(np.arange(d.m // (1 + d.pair)), np.arange(d.n), indexing="ij")
    return place(layout, m, n, d.n)
