"""membar and fence (PTX ISA 9.1, Parallel Synchronization and Communication Instructions)."""

from mmulator.base.codegen.ops import null
from mmulator.base.codegen.types import u64
from mmulator.compiler.emit.emitter import Emitter
from mmulator.compiler.lowering.binding import means
from mmulator.ptx.tree import Address, Instruction
from mmulator.runtime.native.hooks.events import SPACE_CLUSTER, SPACE_CTA, SPACE_GLOBAL, Fence, fenced, order_of
from mmulator.runtime.native.memory.sums import settle_of

_SPACES = {"": 0, "global": SPACE_GLOBAL, "shared::cta": SPACE_CTA, "shared::cluster": SPACE_CLUSTER}


@means("membar", "fence")
def fence(e: Emitter, ins: Instruction) -> None:
    """Write a fence of the host too, because other blocks run on other threads."""
    e.call(settle_of, e.w)
    e.b.line("fence seq_cst")
    at = null(u64)
    if ins.operands and isinstance(ins.operands[0], Address):
        at = e.spill(e.address(ins.operands[0]))
    form = ins.form
    order = order_of(form["sem"] or ("sc" if form["level"] else "acq_rel"), form["scope"] or form["level"])
    e.call(fenced, e.w, e.lanes_of(ins), kind_of(ins), order, _SPACES[form["space"]], at, e.site)


def kind_of(ins: Instruction) -> Fence:
    """The kind of a fence, from its name."""
    name, sem = ins.form.name, ins.form["sem"]
    if name.startswith("fence.mbarrier_init"):
        return Fence.MBARRIER_INIT
    if name.startswith("fence.proxy.tensormap"):
        return Fence.TENSORMAP_ACQUIRE if sem == "acquire" else Fence.TENSORMAP_RELEASE
    if name.startswith("fence.proxy.async::generic"):
        if ins.form["restrict"].endswith("::read"):
            return Fence.GENERIC_READS
        return Fence.GENERIC_ACQUIRE if sem == "acquire" else Fence.GENERIC_RELEASE
    if ".proxy" in name:
        return Fence.ASYNC if ins.form["proxy"] == "async" else Fence.ALIAS
    return Fence.MEMORY
