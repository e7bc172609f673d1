"""Native code inside the shared libraries: the first call of a function starts Python, once in a process."""

import struct
from functools import cache
from typing import Any

from mmulator.base.codegen.engine import llvm_version
from mmulator.base.codegen.lang import native
from mmulator.base.codegen.ops import address, cast_ptr, compare_exchange, keep_order
from mmulator.base.codegen.types import Struct, i32, ptr, ptr_to, u8, u32, u64, void
from mmulator.base.codegen.values import Builder, Value, as_value, constant, module_text
from mmulator.base.errors import InternalError
from mmulator.doors.library.machines import MARKS

UNSAID = dict.fromkeys(MARKS, "")
NEW, STARTING, READY, FAILED = range(4)
STRINGS = (
    "libpython", "home", "script", "home_name", "sched_yield", "getenv", "setenv", "unsetenv", "dlerror", "write", "strlen",
    "lead", "line_end", "is_initialized", "initialize", "ensure", "release", "save", "run",
    "failed_says",
)  # fmt: skip
NAMES = {
    "home_name": "PYTHONHOME", "sched_yield": "sched_yield", "getenv": "getenv", "setenv": "setenv", "unsetenv": "unsetenv",
    "dlerror": "dlerror", "write": "write", "strlen": "strlen", "lead": "mmulator: Python cannot be started in this program: ",
    "line_end": "\n", "is_initialized": "Py_IsInitialized", "initialize": "Py_InitializeEx", "ensure": "PyGILState_Ensure",
    "failed_says": "initialization error", "release": "PyGILState_Release", "save": "PyEval_SaveThread",
    "run": "PyRun_SimpleString",
}  # fmt: skip
Door = Struct("LibraryDoor", [
    ("state", u32), ("slots", u32), ("texts", u32),  # slots of the table, and how many of them, at its end, return a text
    ("dlopen", u64), ("dlsym", u64),  # filled by the dynamic loader
    ("table", u64),  # from the begin of this struct to the first slot, in bytes, backwards
    ("failed", u64),  # likewise: to the function that slots get where Python cannot be started
    ("failed_text", u64),  # likewise, for those that return a text
    *((name, u64) for name in STRINGS),  # from the begin of this struct to the string, in bytes
])  # fmt: skip
_NOW, _GLOBAL = 2, 0x100  # of dlopen


def call(function: Any, returns: Any, *args: Any) -> Value:
    """Macro: call of a C function by its address."""
    b = Builder.current()
    pointer = cast_ptr(u8, as_value(b, function, u64)) if not isinstance(function, Value) else function
    if pointer.ty.kind != "ptr":
        pointer = ptr(pointer)
    return b.call_pointer(pointer, returns, [a if isinstance(a, Value) else constant(b, u64, a) for a in args])


def text(door: Value, offset: Value) -> Value:
    """Macro: address of a string of the library."""
    return u64(door) + offset


@native
def boot(door: ptr_to(Door)) -> None:
    """Make the library ready: start Python, or enter the one that runs, and let it fill the table. Other threads wait."""
    find = door.dlsym
    while door.state < READY:
        old = compare_exchange(address(door.state), u32(NEW), u32(STARTING))
        if old == STARTING:
            call(call(find, u64, u64(0), text(door, door.sched_yield)), i32)
        if old == NEW:
            library = u64(0)
            running = call(find, u64, u64(0), text(door, door.is_initialized))
            why = call(find, u64, u64(0), text(door, door.dlerror))  # all looked up first: dlsym forgets the error of dlopen
            write = call(find, u64, u64(0), text(door, door.write))
            length = call(find, u64, u64(0), text(door, door.strlen))
            if running == 0:
                library = call(door.dlopen, u64, text(door, door.libpython), i32(_NOW | _GLOBAL))
            if running == 0 and library == 0:
                message = call(why, u64)
                call(write, u64, i32(2), text(door, door.lead), call(length, u64, text(door, door.lead)))
                call(write, u64, i32(2), message, call(length, u64, message))
                call(write, u64, i32(2), text(door, door.line_end), u64(1))
            else:
                own = u32(0)
                held = i32(0)
                if call(call(find, u64, library, text(door, door.is_initialized)), i32) == 0:
                    own = u32(1)
                    name = text(door, door.home_name)
                    before = call(call(find, u64, u64(0), text(door, door.getenv)), u64, name)
                    put = call(find, u64, u64(0), text(door, door.setenv))
                    call(put, i32, name, text(door, door.home), i32(1))
                    call(call(find, u64, library, text(door, door.initialize)), void, i32(0))
                    if before == 0:
                        call(call(find, u64, u64(0), text(door, door.unsetenv)), i32, name)
                    else:
                        call(put, i32, name, before, i32(1))
                else:
                    held = call(call(find, u64, library, text(door, door.ensure)), i32)
                if call(call(find, u64, library, text(door, door.run)), i32, text(door, door.script)) == 0:
                    keep_order("release")
                    door.state = READY
                if own == 1:
                    call(call(find, u64, library, text(door, door.save)), u64)
                else:
                    call(call(find, u64, library, text(door, door.release)), void, held)
            if door.state != READY:
                slots = cast_ptr(u64, ptr(u64(door) - door.table))
                for n in range(door.slots):
                    slots[n] = u64(door) - door.failed
                for n in range(door.texts):
                    slots[door.slots - 1 - n] = u64(door) - door.failed_text
                keep_order("release")
                door.state = FAILED
    keep_order("acquire")


@cache
def code(triple: str, cpu: str) -> tuple[bytes, int]:
    """(machine code, offset of `boot` in it): position-independent. triple, cpu: LLVM's names of an architecture and its least
    CPU."""
    import llvmlite.binding as binding

    llvm_version()  # LLVM is prepared
    builder, others = boot.build()
    if others:
        raise InternalError(f"boot calls {[o.name for o in others]}, and is to be one function")
    builder.attributes = "nounwind"
    module = binding.parse_assembly(module_text([builder]))
    machine = binding.Target.from_triple(triple).create_target_machine(cpu=cpu, opt=1, reloc="pic", codemodel="small")
    module.triple, module.data_layout = triple, str(machine.target_data)
    return text_of(machine.emit_object(module), boot.name)


def text_of(data: bytes, symbol: str) -> tuple[bytes, int]:
    """(bytes of the section .text, offset of a function in it) of an object file.

    Raises InternalError for code with relocations.
    """
    (start,) = struct.unpack_from("<Q", data, 40)
    size, number, names = struct.unpack_from("<3H", data, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, start + n * size) for n in range(number)]

    def name_at(place: int) -> str:
        return data[place : data.index(b"\0", place)].decode()

    titles = [name_at(sections[names][4] + s[0]) for s in sections]
    if ".rela.text" in titles:
        raise InternalError("code of a shared library refers to something outside of it")
    at = titles.index(".text")
    symbols = sections[titles.index(".symtab")]
    strings = sections[symbols[6]][4]
    for place in range(symbols[4], symbols[4] + symbols[5], 24):
        name, _, _, _, value, _ = struct.unpack_from("<IBBHQQ", data, place)
        if name_at(strings + name) == symbol:
            return data[sections[at][4] : sections[at][4] + sections[at][5]], value
    raise InternalError(f"{symbol} is not in the object file")
