"""Native functions in a text of their own."""

from mmulator.base.codegen.lang import Native
from mmulator.base.codegen.values import Builder, module_text


def library_text(functions: list[Native]) -> str:
    """One module with these functions and all native functions that they call."""
    done: dict[str, Builder] = {}
    waiting = list(functions)
    while waiting:
        function = waiting.pop()
        if function.name not in done:
            builder, calls = function.build()
            done[function.name] = builder
            waiting.extend(calls)
    return module_text([done[n] for n in sorted(done)])
