"""A block's emitter with its kernel: variables, parameters, and each lane's local memory. Meanings of instructions write with
it.
"""

from typing import Any

from mmulator.base.codegen.lang import Native
from mmulator.base.codegen.loading import address
from mmulator.base.codegen.ops import cast_ptr
from mmulator.base.codegen.types import u64, u128
from mmulator.base.codegen.values import Builder, Value
from mmulator.compiler.emit.block import LANES, BlockEmitter, storage_type
from mmulator.compiler.emit.code import KernelCode
from mmulator.compiler.emit.shadow import Shadow
from mmulator.ptx.program.blocks import Block
from mmulator.ptx.program.frames import Frame
from mmulator.ptx.program.image import LocalFrame
from mmulator.ptx.program.inline_assembly import moved_by_compiler
from mmulator.ptx.program.uses import uses_and_defs
from mmulator.ptx.tree import Instruction
from mmulator.runtime.native.hooks.events import READ, Access, register
from mmulator.runtime.native.memory import memory as mem
from mmulator.runtime.native.state import Cta, Launch, OperationKind, TransferKind

U64, U128 = u64.vec(LANES), u128.vec(LANES)


class Emitter(BlockEmitter):
    """The object with which the meaning of an instruction writes its code: a block's values, and the kernel around it."""

    def __init__(self, kernel: KernelCode, b: Builder, block: Block, frame: Frame) -> None:
        self.kernel = kernel
        self.function_name = block.function.function.name
        self.is_entry = block.function.function.is_entry
        super().__init__(b, block, frame, kernel, kernel.locals[self.function_name].bytes, kernel.options.events)
        self.late = kernel.moved.late
        self.read_before: set[int] = set()  # registers of unread loads that this block has read since
        if kernel.doubtful:
            self.shadow = Shadow(self, kernel.doubtful[self.function_name])

    @property
    def device(self) -> str:
        return self.kernel.device

    @property
    def locals(self) -> LocalFrame:
        """Local memory of this function."""
        return self.kernel.locals[self.function_name]

    def begin(self, ins: Instruction) -> None:
        """Begin to write an instruction, or the ending of a block."""
        self.next_site(ins, self.kernel.sites)
        self.kernel.executed.append(ins)

    def note_early(self, ins: Instruction) -> None:
        """Report to an instrument the registers that a delayed instruction reads, at its original place."""
        names = sorted(uses_and_defs(ins)[0] & self.seen)
        if names and not moved_by_compiler(ins):
            site = len(self.kernel.sites)
            self.kernel.sites.append(ins.original)
            self.kernel.executed.append(ins)
            for name in names:
                self.call(register, self.w, self.mask, self.frame.slots[name], READ | Access.LATER, site)

    def frame_offset(self, name: str) -> int | None:
        """Offset of a variable of this function's local memory, or None."""
        return self.locals.offsets.get(name)

    def kernel_parameter(self, name: str) -> int | None:
        """Offset of a kernel parameter in the parameter memory, or None."""
        if self.is_entry and name not in self.locals.offsets:
            return self.kernel.params.get(name)
        return None

    def launch_field(self, name: str) -> Any:
        return cast_ptr(Launch, cast_ptr(Cta, self.warp("cta")).field("launch")).field(name)

    def uses(self, kind: OperationKind, carry_out: Native) -> None:
        """Note that the kernel issues asynchronous operations of this kind, which the native function `carry_out` executes."""
        self.kernel.queues[kind] = address(carry_out.under(self.events) or carry_out)

    def transfers(self, kind: TransferKind, move: Native) -> None:
        """Note that the kernel issues bulk operations of this kind, whose units the native function `move` copies
        (runtime/native/asynchrony/transfers.py).
        """
        self.kernel.movers[kind] = address(move.under(self.events) or move)

    def mover(self, move: Native) -> int:
        """The number, in this kernel, of a native function that executes transfers."""
        at = address(move.under(self.events) or move)
        movers = self.kernel.movers
        number = next((n for n, known in movers.items() if known == at), max((TransferKind.OWN - 1, *movers)) + 1)
        movers[number] = at
        return number

    def mbarriers(self) -> None:
        """Note that the kernel initialises mbarriers, for which clusters keep records besides their words
        (runtime/native/asynchrony/accounts.py).
        """
        self.kernel.mbarriers = True

    # local memory ---------------------------------------------------------------------------------------------------
    def local_address(self, offset: int) -> Value:
        """Generic address of this frame's local memory at an offset, for each lane."""
        return U64(self.local_base()) + offset

    def local_value(self, at: Value, bits: int) -> Value:
        """A value from each lane's local memory."""
        ty = storage_type(f"b{min(bits, 64)}")
        parts = -(-bits // 64)
        place = self.room(ty, parts)
        function = mem.load_function("local", ty.bits // 8, parts)
        self.call(function, self.w, self.mask, self.spill(at), place, self.site)
        values = [self.fetch(place, ty, n) for n in range(parts)]
        return values[0] if parts == 1 else U128(values[0]) | (U128(values[1]) << 64)

    def store_local(self, at: Value, value: Value) -> None:
        values = [value] if value.ty.bits <= 64 else [U64(value), U64(value >> 64)]
        function = mem.store_function("local", values[0].ty.bits // 8, len(values))
        self.call(function, self.w, self.mask, self.spill(at), self.spill(*values), self.site)
