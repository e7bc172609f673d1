"""Long texts: initialisers that are read at once have the bytes and the errors of those that are not; a limit of time."""

import random

import pytest

import mmulator as mm
from mmulator.base.source import Source
from mmulator.cli.app import run
from mmulator.errors import LaunchError, LimitReached, MmulatorError
from mmulator.ptx.lexer import tokenize
from mmulator.ptx.parser import parse_module

HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"
LONG = HEAD + ".visible .entry k() {\n" + "{}\n" * 200_000 + "ret; }\n"


def outcome(declaration: str) -> tuple[object, ...]:
    """The variable's shape and bytes, or the error and what it points at."""
    try:
        variable = parse_module(Source("<x>", HEAD + declaration)).variables[0]
        return variable.shape, variable.size, variable.initial
    except MmulatorError as error:
        assert error.span is not None
        return error.message, error.span.source.text[error.span.start : error.span.end]


def numbers(choose: random.Random, count: int) -> list[str]:
    kinds = [lambda: str(choose.randrange(256)), lambda: hex(choose.getrandbits(64)), lambda: str(-choose.getrandbits(50)),
             lambda: "0", lambda: "  7 ", lambda: "\n0X1f\t"]  # fmt: skip
    return [choose.choice(kinds)() for _ in range(count)]


@pytest.mark.parametrize("type", ["b8", "s16", "u32", "b64", "f32", "f64"])
@pytest.mark.parametrize("shape", ["[]", "[100]", "[200]", "[50]", "[2][100]", "[10][10]", "[3][2][7]", ""])
def test_a_list_that_is_read_at_once(type: str, shape: str) -> None:
    """A list that is read at once gives the bytes and errors of one with a comment inside, which is read item by item."""
    choose = random.Random(type + shape)
    for extra in ([], ["1+1"], ["5U"], ["077"], ["other"], ["1.5"], ["09"]):
        items = numbers(choose, 100)
        items[choose.randrange(60, 100) : 60] = extra
        plain, odd = (", ".join(items[:n]) for n in (len(items), 40))
        for body in (plain, plain + ",", odd, f"{{{plain}}}, 3"):
            text = f".global .{type} x{shape} = {{{body}}};"
            other = text.replace(", ", ",/**/")
            assert outcome(text) == outcome(other), text
            assert "numbers" not in tokenize(Source("<x>", other)).kinds
    assert "numbers" in tokenize(Source("<x>", f"{{{', '.join(numbers(choose, 64))}}}")).kinds


def test_a_limit_of_time(tmp_path: object, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(LimitReached, match=r"<ptx> was not read and verified within 0\.01 s"):
        mm.Module.load(LONG, timeout=0.01)
    with pytest.raises(LaunchError, match="a time limit of 0 s"):
        mm.Module.load(HEAD, timeout=0)
    file = tmp_path / "long.ptx"  # type: ignore[operator]
    file.write_text(LONG)
    for command in (["check", str(file)], ["run", str(file), "--grid", "1", "--block", "1"]):
        assert run([*command, "--timeout", "0.01"]) == 1
        assert "was not read and verified within 0.01 s" in capsys.readouterr().err
