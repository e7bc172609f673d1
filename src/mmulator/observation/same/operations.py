"""The node of an instruction that computes in each lane for itself: its kind, the modifiers that decide its bits, and its
operands in one order where their order does not matter.
"""

from mmulator.isa.effects import Algebra, Pointer
from mmulator.isa.types import TYPES
from mmulator.observation.same.graph import ExpressionGraph
from mmulator.observation.same.ring import number_type
from mmulator.ptx.tree import Instruction, Reg

COMMUTE = {Algebra.SUM, Algebra.PRODUCT, Algebra.FUSED, Algebra.AND, Algebra.OR, Algebra.XOR, Algebra.MULTIPLE}
SLACK = ("space", "sem", "scope", "cache", "evict", "level", "v", "vec", "uni")  # modifiers that change no bits of a result
MOST = 64  # operands of one sum of whole numbers
NARROW = ("f16", "bf16", "f32")  # arithmetic has one NaN there, whose sign no operand decides
TWO = {"f16": 0x4000, "bf16": 0x4000, "f32": 0x40000000, "f64": 0x4000000000000000}


def operation(
    graph: ExpressionGraph, ins: Instruction, detail: tuple[object, ...], nodes: list[int]
) -> tuple[str, tuple[object, ...], list[int]]:
    """The kind, the detail and the operands of the node of an instruction.

    graph: has the operands.
    ins: the instruction.
    detail: its modifiers.
    nodes: its operands in their order.
    """
    algebra = ins.effects.algebra
    if algebra is Algebra.SELECTION:
        return "SELECTION", (), nodes
    if ins.effects.pointer is Pointer.SUM and algebra is Algebra.NONE and detail[0] in TYPES and detail[2:] == (0,):
        whole = "add", (TYPES[str(detail[0])].bits, "", 0)  # sums of whole numbers associate, and have no sign
        flat = [m for n in nodes for m in (graph.nodes[n].inputs if graph.nodes[n][:2] == whole else (n,))]
        return *whole, sorted(flat if len(flat) <= MOST else nodes)
    if algebra in (Algebra.NONE, Algebra.COMPARISON, Algebra.CONVERSION):
        return ins.form.name, detail, nodes
    if algebra is Algebra.DIFFERENCE and detail[0] in NARROW and not ins.form["atype"]:  # a - b is a + (-b)
        bits = graph.nodes[nodes[1]].bits
        negated = graph.node(Algebra.NEGATION.name, (*modifiers_of_sign(ins, str(detail[0])), 0), (nodes[1],), bits)
        return Algebra.SUM.name, detail, sorted((nodes[0], negated))
    if algebra is Algebra.PRODUCT and detail[0] in TWO and not ins.form["atype"]:  # 2 * a is a + a
        two = graph.node("constant", (TWO[str(detail[0])],), (), graph.nodes[nodes[0]].bits)
        if two in nodes:
            other = nodes[1] if nodes[0] == two else nodes[0]
            return Algebra.SUM.name, detail, [other, other]
    if algebra is Algebra.EXTREME:
        return ins.form.name, detail, nodes if detail[0] == "f64" else sorted(nodes)
    if algebra is Algebra.XOR:
        bits = graph.nodes[nodes[0]].bits
        sign = graph.node("constant", (1 << bits - 1,), (), bits)
        numbers = [n for n in nodes if n != sign]
        kind = number_type(graph.nodes[numbers[0]]) if len(numbers) == 1 else ""
        if kind and TYPES[kind].bits == bits:
            return Algebra.NEGATION.name, (kind, "", 0), numbers
    if algebra in COMMUTE and detail[0] != "f64":  # of two NaNs of f64 the first one's bits stay
        nodes = [*sorted(nodes[:2]), *nodes[2:]]
    return algebra.name, detail, nodes


def modifiers_of_sign(ins: Instruction, kind: str) -> tuple[object, ...]:
    """The modifiers of the negation that a difference has inside: none but .ftz, which both have or have not."""
    return (kind, "rn", *((slot, value) for slot, value in ins.form.modifiers if value and slot == "ftz"))


def modifiers(ins: Instruction, kind: str) -> tuple[object, ...]:
    """The modifiers of an instruction that decide its bits, defaults written out. kind: the type of an element."""
    taken: list[tuple[str, object]] = [
        (slot, value) for slot, value in ins.form.modifiers if value and slot not in (*SLACK, "type", "rnd")
    ]
    parts = tuple(o.component for o in ins.operands if isinstance(o, Reg))
    taken += [("component", parts)] * any(parts)
    rounding = ins.form["rnd"] or ("rn" if kind in TYPES and TYPES[kind].kind == "float" else "")
    return (kind, rounding, *taken)
