"""Small kernels as text."""

from tests.support.places import DATA

HEAD = ".version 8.0\n.target sm_90a\n.address_size 64\n"


def stored(name: str) -> str:
    """The text of tests/data/ptx/NAME.ptx: kernels of tests that are longer than the tests."""
    return (DATA / "ptx" / f"{name}.ptx").read_text()


def entry(body: str, params: str, version: str = "9.0", target: str = "sm_90a", directives: str = "", top: str = "") -> str:
    """A module with the kernel k, whose body declares its own registers.

    params: as they stand in parentheses.
    version, target: of the module.
    directives: of the kernel, such as .reqntid.
    top: what stands before the kernel.
    """
    head = f".version {version}\n.target {target}\n.address_size 64\n{top}"
    return f"{head}.visible .entry k({params}) {directives}\n{{\n{body}\nret;\n}}\n"


def kernel(body: str, params: str = ".param .u64 out", name: str = "k", top: str = "") -> str:
    """A module with one kernel. Registers %p %h %r %f %d %rd<0..63> are declared; %rd0 is the parameter `out`."""
    return f"""{HEAD}{top}
.visible .entry {name}({params})
{{
  .reg .pred %p<64>; .reg .b16 %h<64>; .reg .b32 %r<64>; .reg .f32 %f<64>; .reg .f64 %d<64>; .reg .b64 %rd<64>;
  ld.param.u64 %rd0, [out];
{body}
  ret;
}}
"""


STORE_R1 = """
  mov.u32 %r63, %tid.x;
  mul.wide.u32 %rd63, %r63, 4;
  add.s64 %rd63, %rd0, %rd63;
  st.global.b32 [%rd63], %r1;
"""
