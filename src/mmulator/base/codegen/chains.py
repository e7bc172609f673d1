"""Several functions at one hook: `chained` joins tables of functions by hook, `together` joins instruments."""

from collections.abc import Mapping, Sequence

from mmulator.base.codegen.lang import Instrument, Native, call
from mmulator.base.codegen.values import Builder


class Chain(Native):
    """A native function with the parameters of a hook that calls several functions with them, in order."""

    def __init__(self, name: str, functions: Sequence[Native]) -> None:
        self.function, self.name, self.functions = functions[0].function, name, list(functions)
        self.attributes, self.inline = "", False

    def build(self) -> tuple[Builder, list[Native]]:
        builder = Builder(self.name, self.returns, self.params, attributes=self.attributes)
        with builder:
            for function in self.functions:
                call(builder, function, builder.params)
            builder.ret(None)
        return builder, self.functions


def chained(name: str, tables: Sequence[Mapping[str, Native]]) -> Mapping[str, Native]:
    """For each hook the functions of all tables that take it, one after the other. name: begins the functions' symbols."""
    hooks = dict.fromkeys(hook for table in tables for hook in table)
    heard = {hook: [table[hook] for table in tables if hook in table] for hook in hooks}
    return {hook: f[0] if len(f) == 1 else Chain(f"{name}_{hook}", f) for hook, f in heard.items()}


def together(instruments: Sequence[Instrument]) -> Instrument:
    """One instrument in place of several: at each hook the functions of all are called, in their order."""
    name = "_".join(i.name for i in instruments)
    return Instrument(name, chained(name, [i.hooks for i in instruments]))
