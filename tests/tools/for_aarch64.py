"""Objects for aarch64, made on any machine: `python -m tests.tools.for_aarch64 FOLDER`, in a process of its own.

For each X.ptx of the folder it writes X.s, the assembly of the kernel's own code, and for each X.ll an object file, X.o. All that
the kernels call is compiled and linked too, with products of f16 and of s8 beside.
"""

import sys
from pathlib import Path
from typing import Any

LEVEL = "armv8.1-a"


def assembly(text: str) -> str:
    from mmulator.base.codegen import engine

    binding, machine = engine._binding(), engine._target_machine(2)
    module = binding.parse_assembly(text)
    module.triple, module.data_layout = engine._triple(), str(machine.target_data)
    engine._optimise(module, 2, False)
    return str(machine.emit_assembly(module))


def main(folder: Path) -> None:
    from mmulator.base.codegen import engine
    from mmulator.compiler import kernel
    from mmulator.matrix.numerics import DotKey
    from mmulator.runtime.options import DEFAULT
    from tools import ship

    ship.collector(LEVEL, False)
    take, texts = kernel.BlockCode.take, []

    def keep(self: Any, text: str, group: range, join: Any) -> None:
        texts.append(text)
        take(self, text, group, join)

    kernel.BlockCode.take = keep  # type: ignore[method-assign]
    for path in sorted(folder.glob("*.ptx")):
        texts.clear()
        ship.of_kernel(path, DEFAULT)()
        path.with_suffix(".s").write_text("".join(map(assembly, texts)))
    for path in sorted(folder.glob("*.ll")):
        path.with_suffix(".o").write_bytes(engine._compile(path.read_text(), 2))
    for key in (DotKey("mma", "f16", "f16", "f32", "f32", 16), DotKey("mma", "s8", "s8", "s32", "s32", 32)):
        ship.of_key(key)()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
