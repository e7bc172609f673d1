"""Products and sums without a rounding modifier, fused where NVIDIA's assembler fuses them.

Floating-Point Instructions: mul, add, sub (PTX ISA 9.1): mul/add sequences with no rounding modifiers may be optimized
to use fused-multiply-add instructions on the target device. ptxas does so, and a kernel's bits depend on where. Its
rule was found by experiment; docs/explanation/arithmetic.md states it and says how it is checked.
"""

from collections.abc import Mapping

from mmulator.base.codegen.locks import remaining
from mmulator.isa.effects import Algebra
from mmulator.ptx.program.as_ptxas.facts import FunctionFacts, Walk, carries_product
from mmulator.ptx.program.as_ptxas.products import HeldProduct, Multiplication, is_product, is_sum, may_scale
from mmulator.ptx.program.as_ptxas.rewrite import Rewriter
from mmulator.ptx.program.flow import spread
from mmulator.ptx.tree import Function, Reg


def contract(function: Function) -> Function:
    """The function with each `add` or `sub` that ptxas fuses replaced by `fma.rn` of the same `.ftz` and `.sat`.

    The `mul` stays; compilation drops it if nothing reads it. New registers have names that PTX cannot write. The function is
    pure, and takes time linear in the size of its argument.
    """
    if not _may_fuse(function):
        return function
    finder = Finder(function)
    fused = finder.choose()
    scaled = finder.choose_scalings(fused)
    return Rewriter(finder, fused, scaled).function() if fused or scaled else function


def _may_fuse(function: Function) -> bool:
    """Whether a sum, or a product by a power of two, reads a register to which a product, or a copy of one, is written."""
    made: set[str] = set()
    copies: list[tuple[set[str], set[str]]] = []  # from registers, to a register
    read: set[str] = set()
    for ins in function.instructions:
        if ins.effects.algebra is Algebra.NONE or not isinstance(target := ins.operands[0], Reg):
            continue
        sources = {o.name for o in ins.operands[1:] if isinstance(o, Reg)}
        if is_sum(ins) or may_scale(ins):
            read |= sources
        if is_product(ins):
            made.add(target.name)
        elif carries_product(ins):
            copies.append((sources, {target.name}))
    spread(made, copies)
    return not made.isdisjoint(read)


class Finder(FunctionFacts):
    """The choice of the operand that each sum fuses with, from the readers of each product."""

    def __init__(self, function: Function) -> None:
        super().__init__(function)
        remaining()
        Walk(self).run()
        remaining()

    def choose(self) -> dict[int, int]:
        """Sum -> the operand (0 or 1) whose product it takes.

        Products that are read once come first, then the others; a sum of two products takes the product that is read less
        often, or else the first. A product is given up once a sum has taken its other operand, because then this product is
        added.
        """
        fused: dict[int, int] = {}
        sums = [n for _, n in self.order if n in self.sums]
        alike = {n for n in sums if self._alike(n)}

        def free(held: HeldProduct | None) -> bool:
            return (
                held is not None
                and not held.product.kept
                and all(fused.get(n, j) == j and self._matches(n, held.product) for n, j, _ in held.product.uses)
                and not any(n in alike for n, _, _ in held.product.uses)
            )

        for once in (True, False):
            for n in sums:
                if n in fused:
                    continue
                choice = [
                    (len(held.product.uses), j)
                    for j, held in enumerate(self.sums[n])
                    if held is not None and (len(held.product.uses) == 1 or not once) and free(held)
                ]
                if choice:
                    fused[n] = min(choice)[1]
        return fused

    def choose_scalings(self, fused: Mapping[int, int]) -> dict[int, tuple[Multiplication, int]]:
        """The products by a power of two that are fused with the product which they scale: they must be its only reader."""
        gone = {held.product.at for n, j in fused.items() if (held := self.sums[n][j]) is not None}
        chosen: dict[int, tuple[Multiplication, int]] = {}
        for n, (product, power) in self.scalings.items():
            if product.readers == 1 and not product.through and not product.uses and n not in gone and product.at not in chosen:
                chosen[n] = product, power
        return chosen

    def _matches(self, n: int, product: Multiplication) -> bool:
        """Whether this sum can be fused with that product; across regions only if this needs no more registers."""
        form = self.instruction(n).form
        here, there = self.regions.place[n], self.regions.place[product.at]
        near = here[0] == there[0] and there < here
        return (
            form["type"] == product.type and bool(form["ftz"]) == product.ftz
            and (near or (product.resident and here[0] != there[0]))
        )  # fmt: skip

    def _alike(self, n: int) -> bool:
        """Whether a sum is x + x of one product, or of two with the same factors, which is not fused."""
        first, second = self.sums[n]
        if first is None or second is None:
            return False
        if first.product is second.product:
            return True
        pair = first.product, second.product
        if self.instruction(n).effects.algebra is not Algebra.SUM or first.negated != second.negated:
            return False
        return min(len(p.uses) for p in pair) == 1 and self._factors(pair[0]) == self._factors(pair[1])

    def _factors(self, product: Multiplication) -> list[str]:
        ins = self.instruction(product.at)
        if ins.effects.algebra is not Algebra.PRODUCT:
            return [ins.opcode, *ins.modifiers, *(o.name if isinstance(o, Reg) else str(o) for o in ins.operands[1:])]
        return sorted(o.name if isinstance(o, Reg) else str(self.constant(o, product.type)) for o in ins.operands[1:])
