"""mma and wmma.mma on registers."""

from mmulator.isa.form import Form
from mmulator.matrix.instruction.operands import Array, Operands, batch, check_metadata, column, integer, registers
from mmulator.matrix.layouts import scales
from mmulator.matrix.layouts.operands import BY_LANE
from mmulator.matrix.twin import batches
from mmulator.matrix.twin.places import product_for, scale_step
from mmulator.matrix.twin.registers import run
from mmulator.matrix.twin.wide import widens


def mma(form: Form, device: str, o: Operands) -> Array:
    a, b, c = (registers(form, name, o[name]) for name in "abc")
    e = scale_a = scale_b = None
    selector, select = 0, (0, 0)
    if form.sparse:
        selector, e = integer("f", o["f"]), column(form, "e", o["e"])
        check_metadata(form, e, selector, o["strict"])
    if form.block_scale:
        scale_a, scale_b = (column(form, f"scale_{side}_data", o[f"scale_{side}_data"]) for side in "ab")
        select = (_scale_selector(form, "a", o), _scale_selector(form, "b", o))
    leading = batch(a=(a, 2), b=(b, 2), c=(c, 2), e=(e, 1), scale_a_data=(scale_a, 1), scale_b_data=(scale_b, 1))
    if widens(form) and not (form.sparse or form.block_scale):
        return batches.run(form, device, a, b, c, leading)
    product = product_for(form, device, selector, BY_LANE)
    return run(product, a, b, c, e, scale_a, scale_b, batch=leading, select=select)


def _scale_selector(form: Form, side: str, o: Operands) -> int:
    """Offset in bytes of the selected scale factors from those that selectors of 0 select."""
    byte_id, thread_id = (integer(f"{name}_id_{side}", o[f"{name}_id_{side}"]) for name in ("byte", "thread"))
    scales.places(form, side, byte_id, thread_id)  # raises for a selector that is not defined
    return byte_id + thread_id * scale_step(form, side)
