"""The kernels of bench_table.py under ttsem (PyPI), which executes TTIR with NumPy: what `bench_table.py --ttsem` starts.

    python3.12 -m venv VENV && VENV/bin/pip install ttsem==0.1.0 triton==3.8.0
    python benchmarks/bench_table.py --ttsem VENV/bin/python
    VENV/bin/python benchmarks/bench_ttsem.py vadd softmax

ttsem needs a version of Triton and of Python that mmulator's other benchmarks do not have. Its check for races is off: it
takes more time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from bench_table import timed
from processes import answer


def ttir(case: Any) -> str:
    """The TTIR of a kernel in MLIR's generic form."""
    from triton._C.libtriton import ir
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, make_backend
    from ttsem import mlir

    mlir.enable_generic_printing()
    types = [text.strip().partition(":") for text in case.signature.split(",")]
    signature = {name: kind for name, (kind, _, _) in zip(case.kernel.arg_names, types)}
    source = ASTSource(
        fn=case.kernel, signature=signature | dict.fromkeys(case.constants, "constexpr"), constexprs=case.constants,
        attrs={(at,): [["tt.divisibility", int(of)]] for at, (_, _, of) in enumerate(types) if of},
    )  # fmt: skip
    target = GPUTarget("cuda", 90, 32)
    backend, stages, context = make_backend(target), dict[str, Any](), ir.context()
    options = backend.parse_options({"num_warps": case.warps})
    backend.add_stages(stages, options, source.language)
    ir.load_dialects(context)
    backend.load_dialects(context)
    generation = backend.get_codegen_implementation(options)
    module = source.make_ir(target, options, generation, backend.get_module_map(), context)
    return str(stages["ttir"](module, {"target": target, **options.__dict__}))


def launcher(name: str) -> Callable[[], None]:
    import speed_kernels
    from ttsem import Interp, Memory, parse

    case = speed_kernels.cases()[name]()
    program = parse(ttir(case))
    (function,) = (f for f in program.funcs if case.kernel.__name__ in f)

    def launch() -> None:
        memory, arguments = Memory(), []
        for given in case.arguments:
            if isinstance(given, np.ndarray):
                memory.register(given.ctypes.data, given)
                arguments.append(np.array(given.ctypes.data, np.int64))
            else:
                arguments.append(np.array(given, np.int32 if isinstance(given, int) else np.float32))
        Interp(program, memory, (*case.grid, 1, 1)[:3]).run_grid(function, arguments)

    for at, value in case.again.items():
        case.arguments[at][...] = value
    launch()
    got, wanted = case.arguments[case.result].astype(np.float64), np.asarray(case.numpy(), np.float64)
    assert np.abs(got - wanted).max() <= case.close * np.abs(wanted).max(), name
    return launch


def main() -> None:
    known: dict[str, Callable[[], None]] = {}

    def seconds(name: str, *_: Any) -> float:
        if name not in known:
            known[name] = launcher(name)
        return timed(known[name])

    if "--worker" in sys.argv:
        answer(seconds)
    for name in sys.argv[1:]:
        if not name.startswith("--"):
            print(f"{name:16}{1e3 * seconds(name):12.3f} ms", flush=True)


if __name__ == "__main__":
    main()
