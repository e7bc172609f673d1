"""Kernels of one tcgen05.mma: operands are copied to shared and tensor memory as given, and all of D's columns are read back."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from mmulator import Module
from mmulator.layouts.instruction_descriptor import InstructionDescriptor, encode
from mmulator.layouts.tensor_memory import layout_id, place
from mmulator.layouts.tensor_variants import Variant

LANES = 128
A_AT, B_AT, BARRIER, ADDRESS = 1024, 1024 + (64 << 10), 0, 8  # bytes of shared memory


@dataclass
class Product:
    """One tcgen05.mma of a CTA, or of a pair.

    text: the instruction with its modifiers, `tcgen05.mma.cta_group::1.kind::f16`.
    d: what its instruction descriptor says.
    a, b: images of A and B in the shared memory of each CTA, or with `in_cells` A's words [CTA][lane][column].
    a_desc, b_desc: their matrix descriptors, whose start is added.
    cells: (first column, words [CTA][lane][column]) of what else lies in tensor memory before.
    operands: operands behind the descriptors.
    """

    text: str
    d: InstructionDescriptor
    a: np.ndarray
    b: np.ndarray
    a_desc: int
    b_desc: int
    cells: dict[int, np.ndarray] = field(default_factory=dict)
    in_cells: bool = False
    metadata: int = -1
    scales: tuple[int, int] = (-1, -1)
    adds: bool = True
    behind: str = ""
    target: str = "sm_100a"


def _store(register: str, column: int, count: int, offset: int) -> str:
    """Load `count` words of a thread's row from the image, and store them to tensor memory."""
    names = [f"%x{n}" for n in range(count)]
    loads = "".join(f"  ld.global.u32 {name}, [%image + {offset + 4 * n}];\n" for n, name in enumerate(names))
    return loads + f"  tcgen05.st.sync.aligned.32x32b.x{count}.b32 [{register} + {column}], {{{', '.join(names)}}};\n"


def ptx(p: Product, columns: int) -> str:
    """The kernel: run(a, b, image, out), each with one part for each CTA; image and out are [CTA][lane][columns]."""
    group = 2 if p.d.pair else 1
    moves = "".join(_store("%lane", column, 32, 4 * column) for column in range(0, columns, 32))
    names = ", ".join(f"%x{n}" for n in range(32))
    back = "".join(
        f"  tcgen05.ld.sync.aligned.32x32b.x32.b32 {{{names}}}, [%lane + {column}];\n  tcgen05.wait::ld.sync.aligned;\n"
        + "".join(f"  st.global.u32 [%out + {4 * (column + n)}], %x{n};\n" for n in range(32))
        for column in range(0, columns, 32)
    )
    a = "[%ta]" if p.in_cells else "%da"
    operands = ["[%td]", a, "%db"]
    if p.metadata >= 0:
        operands.append("[%tm]")
    operands.append("%word")
    if p.scales[0] >= 0:
        operands += ["[%sa]", "[%sb]"]
    words = ", ".join([*operands, *([p.behind] if p.behind.startswith("{") else []), "%adds"])
    cluster = ".explicitcluster\n.reqnctapercluster 2, 1, 1\n" if group == 2 else ""
    meet = "  barrier.cluster.arrive.aligned;\n  barrier.cluster.wait.aligned;\n" if group == 2 else "  bar.sync 0;\n"
    commit = (
        "tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%bar], 3;" if group == 2
        else "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%bar];"
    )  # fmt: skip
    lead = "  mov.u32 %r, %cluster_ctarank;\n  setp.ne.u32 %q, %r, 0;\n  @%q bra DONE;\n" if group == 2 else ""
    return f""".version 8.7
.target {p.target}
.address_size 64
.extern .shared .align 1024 .b8 shared[];
.visible .entry run(.param .u64 a, .param .u64 b, .param .u64 image, .param .u64 out)
{cluster}{{
  .reg .b64 %a, %b, %image, %out, %da, %db, %o; .reg .b32 %t, %n, %r, %w, %base, %lane, %bar, %td, %ta, %tm, %sa, %sb, %word;
  .reg .b32 %x<32>; .reg .pred %p, %q, %adds;
  ld.param.u64 %a, [a]; ld.param.u64 %b, [b]; ld.param.u64 %image, [image]; ld.param.u64 %out, [out];
  mov.u32 %t, %tid.x; mov.u32 %r, %ctaid.x; mov.u32 %base, shared;
  mul.wide.u32 %o, %r, {len(p.a[0])}; add.u64 %a, %a, %o;
  mul.wide.u32 %o, %r, {len(p.b[0])}; add.u64 %b, %b, %o;
  mad.lo.u32 %n, %r, {LANES}, %t; mul.wide.u32 %o, %n, {4 * columns}; add.u64 %image, %image, %o; add.u64 %out, %out, %o;
  add.u32 %bar, %base, {BARRIER};
  shr.u32 %w, %t, 5; setp.ne.u32 %p, %w, 0; @%p bra ALLOCATED;
  add.u32 %n, %base, {ADDRESS};
  tcgen05.alloc.cta_group::{group}.sync.aligned.shared::cta.b32 [%n], {columns};
  tcgen05.relinquish_alloc_permit.cta_group::{group}.sync.aligned;
ALLOCATED:
  mov.u32 %n, %t;
A: setp.ge.u32 %p, %n, {len(p.a[0]) // 4}; @%p bra HAVE_A;
  mul.wide.u32 %o, %n, 4; add.u64 %o, %o, %a; ld.global.u32 %r, [%o];
  mad.lo.u32 %w, %n, 4, %base; st.shared.u32 [%w + {A_AT}], %r; add.u32 %n, %n, {LANES}; bra A;
HAVE_A: mov.u32 %n, %t;
B: setp.ge.u32 %p, %n, {len(p.b[0]) // 4}; @%p bra HAVE_B;
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
{lead}  add.u32 %n, %base, {A_AT}; shr.u32 %n, %n, 4; cvt.u64.u32 %da, %n; add.u64 %da, %da, {p.a_desc:#x};
  add.u32 %n, %base, {B_AT}; shr.u32 %n, %n, 4; cvt.u64.u32 %db, %n; add.u64 %db, %db, {p.b_desc:#x};
  add.u32 %ta, %td, {256 if p.in_cells else 0}; add.u32 %tm, %td, {max(p.metadata, 0)};
  add.u32 %sa, %td, {max(p.scales[0], 0)}; add.u32 %sb, %td, {max(p.scales[1], 0)};
  mov.u32 %word, {encode(p.d):#x}; setp.ne.u32 %adds, {int(p.adds)}, 0;
  {p.text} {words};
  {commit}
DONE:
  mbarrier.try_wait.parity.shared.b64 %p, [%bar], 0; @!%p bra DONE;
  tcgen05.fence::after_thread_sync;
{back}{meet}  shr.u32 %w, %t, 5; setp.ne.u32 %p, %w, 0; @%p bra OVER;
  tcgen05.dealloc.cta_group::{group}.sync.aligned.b32 %td, {columns};
OVER: ret;
}}
"""


def run(p: Product, image: np.ndarray, **how: object) -> np.ndarray:
    """All words of tensor memory behind the product: uint32 [CTA][lane][column]. image: those before it."""
    out = np.zeros_like(image)
    kernel = Module.load(ptx(p, image.shape[-1]))["run"]
    kernel.launch(len(image), LANES, [p.a, p.b, image, out], shared=B_AT + (64 << 10), **how)  # type: ignore[arg-type]
    return out


def plain(elements: np.ndarray, size: int) -> tuple[np.ndarray, int]:
    """(image, descriptor) of a K-major matrix without swizzling. elements: bytes [rows][bytes of a row]. size: unused bytes."""
    rows, line = elements.shape
    r, byte = np.divmod(np.arange(rows * line), line)
    stride, leading = 128 * (line // 16), 128
    image = np.zeros(rows * line + size, np.uint8)
    image[r % 8 * 16 + r // 8 * stride + byte // 16 * leading + byte % 16] = elements.reshape(-1)
    return image, (leading >> 4) << 16 | (stride >> 4) << 32 | 1 << 46


def cells(d: InstructionDescriptor, variant: Variant, base: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(lane, column) of each element of one CTA's part of D."""
    layout = layout_id(d.m, variant.pair, variant.ws, variant.sparse)
    m, n = np.meshgrid(np.arange(d.m // (1 + variant.pair)), np.arange(d.n), indexing="ij")
    lane, column = place(layout, m, n, d.n)
    return lane + base, column
