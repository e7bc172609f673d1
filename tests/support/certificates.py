"""Small kernels for certificates, put together from parts, and what is said of them."""

from typing import Any

import numpy as np

import mmulator as mm
from mmulator.host.certificate import CERTIFIED, COUNTEREXAMPLE, NOT_DECIDED, Certificate

HEAD = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 other) {
  .reg .b32 t, v, a, n, w, l; .reg .b64 p, q, r, s; .reg .pred one, done, early;
  .shared .align 8 .b64 bar; .shared .align 8 .b64 ready; .shared .align 16 .b8 tile[2048];
  ld.param.u64 p, [out];
  mov.u32 t, %tid.x;
  shr.u32 w, t, 5;
  and.b32 l, t, 31;
  mul.wide.u32 q, t, 4;
  add.u64 q, p, q;
"""
TAIL = "  st.global.u32 [q], v;\n  ret;\n}\n"
START = """  setp.eq.u32 one, t, 0;
  @one mbarrier.init.shared.b64 [bar], {count};
  @one mbarrier.init.shared.b64 [ready], {count};
  bar.sync 0;
  mov.u32 v, 1;
"""
HEAD_OF_START, DEPOT = "  setp.eq.u32 one, t, 0;\n", "  .local .align 8 .b8 depot[16];\n"
ARRIVE = "  mbarrier.arrive.shared.b64 _, [bar];\n"


def loop(name: str, parity: int, at: str = "bar") -> str:
    return f"{name}: mbarrier.try_wait.parity.shared.b64 done, [{at}], {parity};\n  @!done bra {name};\n"


def certificate(body: str, block: int = 64, grid: int = 1, tail: str = TAIL, **more: Any) -> Certificate:
    kernel = mm.Module.load(HEAD + body + tail, name="k.ptx")["k"]
    out, other = np.zeros(4096, np.uint32), np.zeros(4096, np.uint32)
    try:
        found = kernel.launch(grid, block, [out, other], certify=True, **more).certificate
    except mm.errors.ExecutionFault as fault:
        found = fault.__dict__["certificate"]
    assert found is not None
    return found


def reason(body: str, **more: Any) -> str:
    """The only reason why a kernel is not certified."""
    found = certificate(body, **more)
    assert found.verdict == NOT_DECIDED and found.schedule is None, found
    whys = {r.why for r in found.reasons if not r.why.startswith("explored ")}
    assert len(whys) == 1, whys
    assert all(r.location.startswith("k.ptx:") for r in found.reasons if r.why in whys)
    return whys.pop()


def is_certified(body: str, **more: Any) -> Certificate:
    found = certificate(body, **more)
    assert found.verdict == CERTIFIED and not found.reasons, found
    return found


def refused(body: str, **more: Any) -> str:
    """The reasons why a kernel is not certified; another schedule may have shown one."""
    found = certificate(body, **more)
    assert found.verdict in (NOT_DECIDED, COUNTEREXAMPLE), found
    return " ".join(r.why for r in found.reasons)


# A store of {value} by each lane of a warp when it is its turn.
BY_TURNS = """  mov.u32 n, 0;
again:
  setp.eq.u32 one, t, n;
  @one st.shared.u32 [tile], {value};
  add.u32 n, n, 1;
  setp.lt.u32 done, n, 32;
  {between}@done bra again;
  bar.sync 0;
  ld.shared.u32 v, [tile];
"""
