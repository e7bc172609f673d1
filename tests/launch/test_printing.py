"""Device printf: what CUDA prints, as much as fits, and nothing that escapes from the callback."""

import struct
import time

import numpy as np
import pytest

from mmulator.errors import ExecutionFault
from mmulator.host.driver import Driver
from mmulator.host.module import Module
from mmulator.host.report import Report
from mmulator.runtime.launch import printing
from tests.support.ptx_text import kernel

DECLARED = ".extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);\n"
CALL = "{ .param .b64 pa; .param .b64 pb; .param .b32 pr; st.param.b64 [pa], %rd1; st.param.b64 [pb], %rd2; " \
       "call (pr), vprintf, (pa, pb); ld.param.b32 %r1, [pr]; }"  # fmt: skip


def launch(text: str, arguments: bytes = b"", call: str = CALL, lanes: int = 1, **options: object) -> tuple[Report, np.ndarray]:
    """One printf by each lane; the report, and what the calls returned."""
    data = [*text.encode(), 0]
    values = [*(arguments or bytes(8)), *b"\0" * 64]
    top = DECLARED + f".global .align 1 .b8 text[{len(data)}] = {{{', '.join(map(str, data))}}};\n"
    top += f".global .align 8 .b8 given[{len(values)}] = {{{', '.join(map(str, values))}}};\n"
    body = f"  mov.u64 %rd1, text;\n  mov.u64 %rd2, given;\n  mov.u32 %r1, 77;\n  {call}\n" + (
        "  mov.u32 %r2, %tid.x;\n  mad.wide.u32 %rd3, %r2, 4, %rd0;\n  st.global.u32 [%rd3], %r1;"
    )
    out = np.zeros(32, np.uint32)
    report = Module.load(kernel(body, top=top), name="print.ptx")["k"].launch(1, lanes, [out], **options)
    return report, out


def words(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}i", *values)


# (format, arguments, text, result) as an NVIDIA H100 with driver 580 has them
MEASURED = [
    ("[%.*d]", words(-5, 7), "[%.*d]", 0), ("[%*d]", words(-6, 7), "[7     ]", 2), ("[%.*s]", words(2), "[%.*s]", 0),
    ("[%s]", bytes(8), "[(null)]", 1), ("[%5%]", b"", "[%5%]", 0), ("[%q]", words(1), "[%q]", 0), ("[%", b"", "[%", 0),
    ("[%c]", words(65), "[A]", 1), ("[%5c]", words(65), "[    A]", 1), ("[%#x]", words(255), "[0xff]", 1),
    ("[%#o]", words(8), "[010]", 1), ("[%+d]", words(5), "[+5]", 1), ("[% d]", words(5), "[ 5]", 1),
    ("[%p]", struct.pack("<Q", 4096), "[0x1000]", 1), ("[%hd]", words(70000), "[4464]", 1), ("[%hx]", words(-1), "[ffff]", 1),
    ("[%lc]", words(65), "[A]", 1), ("[%n]", bytes(8), "[%n]", 0), ("[%.0f]", struct.pack("<d", 2.5), "[2]", 1),
    ("[%a]", struct.pack("<d", 1.5), "[0x1.8p+0]", 1), ("[%A]", struct.pack("<d", 1.5), "[0X1.8P+0]", 1),
    ("[%10.3e]", struct.pack("<d", 12345.678), "[ 1.235e+04]", 1), ("[%G]", struct.pack("<d", 1e-10), "[1E-10]", 1),
    ("[%F]", struct.pack("<d", float("inf")), "[INF]", 1), ("[%f]", struct.pack("<d", float("-inf")), "[-inf]", 1),
    ("[%05f]", struct.pack("<d", float("nan")), "[  nan]", 1), ("[%.*f]", words(-1), "[%.*f]", 0),
    ("[%zu]", words(5), "[%zu]", 0), ("[%jd]", words(5), "[%jd]", 0), ("[%td]", words(5), "[%td]", 0),
    ("[%Lf]", bytes(8), "[%Lf]", 0),
    ("[%u %d]", words(-1, -1), "[4294967295 -1]", 2), ("[%llx]", struct.pack("<q", -1), "[ffffffffffffffff]", 1),
    ("[%.5d]", words(3), "[00003]", 1), ("[%-5d|]", words(3), "[3    |]", 1), ("[%08.3d]", words(3), "[     003]", 1),
    ("[%x]", words(-1), "[ffffffff]", 1), ("plain", b"", "plain", 0), ("%%", b"", "%", 0), ("[%l]", words(1), "[%l]", 0),
    ("[%.d]", words(0), "[]", 1), ("[%.x]", words(0), "[]", 1), ("[%2000d]", words(1), f"[{1:2000d}]", 1),
    ("[%.2000d]", words(1), f"[{1:02000d}]", 1),
]  # fmt: skip


def test_formats_print_what_cuda_prints() -> None:
    for text, arguments, wanted, count in MEASURED:
        memory, _ = printing.layout(text)
        values = memory.unpack(arguments[: memory.size].ljust(memory.size, b"\0"))
        assert printing.format_c(text, values) == wanted, text
        assert len(values) == count, text


@pytest.mark.parametrize("value", [0.0, 1.0, 1.5, 1e300, 1.999999999, 0.1])
def test_hexadecimal_floats(value: float) -> None:
    """To all digits as Python writes them, and rounded to fewer."""

    def made(spec: str) -> str:
        return printing.format_c(spec, struct.unpack("<Q", struct.pack("<d", value)))

    assert float.fromhex(made("%a")) == value and made("%.13a") == (value.hex() if value else "0x0.0000000000000p+0")
    assert made("%.20a") == made("%.13a").replace("p", "0000000p")
    for digits in range(13):
        text = made(f"%.{digits}a")
        assert abs(float.fromhex(text) - value) <= value * 2.0 ** -(4 * digits) / 2
        assert len(text.partition("p")[0].partition(".")[2]) == digits


def test_the_result_is_the_number_of_arguments_in_every_lane() -> None:
    report, out = launch("%d and %d\n", words(3, 4), lanes=5)
    assert report.output == "3 and 4\n" * 5
    assert out[:6].tolist() == [2] * 5 + [0]


@pytest.mark.parametrize("call", ["call (%r1), vprintf, (%rd1, %rd2);", "call (%r1), vprintf, (%rd1, 0);"])
def test_arguments_and_results_in_registers(call: str) -> None:
    report, out = launch("%d\n" if "%rd2" in call else "x\n", words(3), call)
    assert report.output in ("3\n", "x\n") and out[0] == ("%rd2" in call)


ASSERT = (
    ".extern .func __assertfail (.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e);\n"
    ".global .align 1 .b8 text[6] = {105, 32, 60, 32, 110, 0};\n.global .align 1 .b8 file[5] = {97, 46, 99, 117, 0};\n"
    ".global .align 1 .b8 name[4] = {102, 40, 41, 0};\n"
)
FAILS = "mov.u64 %rd1, text; mov.u64 %rd2, file; mov.u64 %rd3, name; call __assertfail, (%rd1, %rd2, 5, %rd3, 1);"


def test_each_thread_of_a_warp_whose_assertion_fails_is_told_as_cuda_does(capsys: pytest.CaptureFixture[str]) -> None:
    body = "mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 6; @%p1 bra over; call f, (%r1); over:"
    called = f"{ASSERT}.func f (.param .b32 n) {{ .reg .b64 %rd<4>; {FAILS} ret; }}\n"
    driver = Driver()
    function = driver.load(kernel(body, top=called)).function("k")
    with pytest.raises(ExecutionFault, match=r"in block \(0, 0, 0\), thread \(6, 0, 0\)") as caught:
        driver.launch(function, (1, 1, 1), (8, 5, 1), bytes(8))
    lines = [f"a.cu:5: f(): block: [0,0,0], thread: [{x},{y},0] Assertion `i < n` failed." for y in range(4) for x in (6, 7)]
    assert [*caught.value.asserted] == lines == capsys.readouterr().err.splitlines()


@pytest.mark.parametrize("text", ["%2000000000d", "%.2000000000d", "%.999999999f", "%99999999999999999999d", "%-2000000000d|"])
def test_the_text_of_a_launch_is_bounded(text: str) -> None:
    start = time.process_time()
    report, out = launch(text, bytes(8), lanes=32)
    assert len(report.output) <= printing.LIMIT and time.process_time() - start < 4
    assert (out == 1).all()


def test_many_strings_are_bounded() -> None:
    """Each of 1,000 strings is the format itself; the launch keeps 8 MiB of them."""
    top = DECLARED + f".global .align 1 .b8 text[2001] = {{{', '.join(['37, 115'] * 1000)}, 0}};\n"
    top += f".global .align 8 .u64 given[1000] = {{{', '.join(['generic(text)'] * 1000)}}};\n"
    body = f"  mov.u64 %rd1, text;\n  mov.u64 %rd2, given;\n  {CALL}\n  st.global.u32 [%rd0], %r1;"
    out = np.zeros(1, np.uint32)
    start = time.process_time()
    report = Module.load(kernel(body, top=top))["k"].launch(4, 32, [out])
    assert 8_000_000 <= len(report.output) <= printing.LIMIT and out[0] == 1000 and time.process_time() - start < 6


@pytest.mark.parametrize("size", [1000, 1 << 18])
def test_the_buffer_keeps_the_last_calls(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """10,000 lines of 12 characters: the buffer is circular, and as large as the program has set it."""
    monkeypatch.setattr(printing, "buffer", [size])
    top = DECLARED + f".global .align 1 .b8 text[6] = {{{', '.join(map(str, b'%11d'))}, 10, 0}};\n"
    body = "  .local .align 8 .b8 own[8];\n  mov.u32 %r2, 0;\nL:  st.local.u32 [own], %r2;\n  mov.u64 %rd1, text;\n"
    body += f"  cvta.local.u64 %rd2, own;\n  {CALL}\n  add.u32 %r2, %r2, 1;\n  setp.lt.u32 %p1, %r2, 10000;\n  @%p1 bra L;"
    report = Module.load(kernel(body, top=top))["k"].launch(1, 1, [np.zeros(1, np.uint32)])
    kept = min(10_000, size // 20)  # 16 bytes of a call, and 4 of its argument
    assert report.output == "".join(f"{n:11}\n" for n in range(10_000 - kept, 10_000))
    assert (printing.CUT in report.notes) == (kept < 10_000)


def test_printing_looks_at_the_time_limit() -> None:
    top = DECLARED + ".global .align 1 .b8 text[2] = {120, 0};\n"
    text = kernel(f"  mov.u64 %rd1, text;\n  mov.u64 %rd2, 0;\nL: {CALL}\n  bra L;", top=top)
    start = time.process_time()
    with pytest.raises(ExecutionFault, match="did not finish"):
        Module.load(text)["k"].launch(1, 32, [np.zeros(1, np.uint32)], timeout=0.3)
    assert time.process_time() - start < 6


def test_an_error_while_printing_is_a_fault(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    def broken(*_: object) -> str:
        raise MemoryError("no room")

    monkeypatch.setattr(printing, "read_string", broken)
    with pytest.raises(ExecutionFault, match=r"printf failed: MemoryError: no room, in block \(0, 0, 0\), thread \(0, 0, 0\)"):
        launch("x")
    assert "Traceback" not in capfd.readouterr().err


def test_wild_pointers_print_nothing_of_the_host() -> None:
    """A format and arguments anywhere: what is not there reads as nothing, and the result is defined."""
    for address in (0, 8, 5 << 32, (1 << 64) - 1, 0x7F0000000000):
        call = f"mov.u64 %rd2, {address}; {CALL}"
        report, out = launch("[%lld %s %f]\n", call=call)
        assert report.output == "[0 (null) 0.000000]\n" and out[0] == 3
        report, out = launch("x", call=f"mov.u64 %rd1, {address}; {CALL}")
        assert report.output == "" and out[0] == 0


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
def test_an_np_matrix_is_read_by_its_bytes() -> None:
    """A matrix object keeps two dimensions whatever is done to it."""
    data = np.matrix(np.frombuffer(b"ok\0\0%d%s\0\0\0\0", np.uint8).reshape(3, 4))
    body = f"  mov.u64 %rd1, %rd0;\n  mov.u64 %rd2, 0;\n  {CALL}"
    report = Module.load(kernel(body, top=DECLARED))["k"].launch(1, 1, [data])
    assert report.output == "ok"
