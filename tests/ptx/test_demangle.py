"""C++ names: read as binutils reads them, and found by a part of them."""

import random

import pytest

from mmulator.base.demangle import base_name, demangle, unmangled
from mmulator.base.names import choose, readable, shorter
from mmulator.errors import LaunchError
from tests.support.places import DATA

# name, a blank, what binutils 2.40 makes of it. The names are those of g++ for a small program, of nvcc and of Numba.
TABLE = dict(line.split(" ", 1) for line in (DATA / "demangled.txt").read_text().splitlines())


def test_names_are_read_as_binutils_reads_them() -> None:
    assert len(TABLE) > 40
    assert {name: demangle(name) for name in TABLE} == TABLE


def test_functions_of_numba_have_their_names_in_python() -> None:
    tags = "B2v1B21cw51cXTLSUwv1sDUaKthq"
    names = {
        f"_ZN8__main__6helper12_3clocals_3e3add{tags}Ex5ArrayIxLi1E1C7mutable7alignedE": "helper.<locals>.add",
        f"_ZN7kernels5saxpy{tags}Ef": "kernels.saxpy",
        f"_ZN08NumbaEnv7kernels5saxpy{tags}Ef": "NumbaEnv::kernels::saxpy[abi:v1][abi:cw51cXTLSUwv1sDUaKthq](float)",
    }
    assert {name: demangle(name) for name in names} == names
    for part, name in zip(("add", "saxpy"), names):
        assert choose([*names][:2], part, "no kernel") == name


def test_other_names_stay_as_they_are() -> None:
    """Nothing is made of a name that is cut off, changed, or none; and nothing fails."""
    for name in ("gemm", "", "_Z", "_Z4gem", "_ZN", "_Z1fS9_", "_Z1fT_", "_ZN1AC1Ev", "_Z" + "P" * 5000, "_Z" + "N1a" * 3000):
        assert demangle(name) in (name, "A::A()")
    generator = random.Random(1)
    for name in TABLE:
        for _ in range(40):
            at = generator.randrange(2, len(name))
            for other in (name[:at], name[:at] + generator.choice("ZNIESTLPK0_9") + name[at + 1 :]):
                assert isinstance(demangle(other), str) and isinstance(base_name(other), str)


def test_messages_have_readable_names() -> None:
    assert str(LaunchError("_Z4lonePi: no room")) == "lone(int*): no room"
    for text in ("k", "lone(int*) (_Z4lonePi)", "_Z4lonePi_param_0", "a_Z4lonePi", "_Zfoo"):
        assert unmangled(text) == text


def test_long_names_lose_what_lies_deepest() -> None:
    name = "void a::k<b::F<c<d<int> >, int*>, s<e<f>> >(g<h>, (anonymous namespace)::x, bool (*)(int)) const"
    assert [shorter(name, room) for room in (len(name), 95, 93, 84, 0)] == [
        name,
        "void a::k<b::F<c<...>, int*>, s<e<...>> >(g<h>, (anonymous namespace)::x, bool (*)(int)) const",
        "void a::k<b::F<...>, s<...> >(g<...>, (anonymous namespace)::x, bool (...)(...)) const",
        "void a::k<...>(...) const",
        "void a::k<...>(...) const",
    ]
    assert shorter("bool operator<< <int>(A, B)", 0) == "bool operator<< <...>(...)"
    assert shorter("A::operator()(int)", 0) == "A::operator()(...)" and shorter("f<(A)->b>", 0) == "f<...>"
    for full in (text for text in TABLE.values() if ")>(" not in text):  # greater than
        found = [shorter(full, room) for room in range(len(full) + 1)]
        assert found[-1] == full and all(text.count("(") == text.count(")") for text in found)


FLOAT, HALF = "_ZN2ns4gemmIfEEvPKfPT_", "_ZN2ns4gemmI6__halfEEvPKfPT_"
NAMES = [FLOAT, HALF, "_Z4scanPi", "scan_all"]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (FLOAT, FLOAT),  # itself
        ("void ns::gemm<float>(float const*, float*)", FLOAT),
        ("gemm<float>", FLOAT),
        ("ns::gemm<__half>", HALF),
        ("half", HALF),
        ("scan", "_Z4scanPi"),  # the whole name of one goes before a part of another
        ("scan(int *)", "_Z4scanPi"),
        ("all", "scan_all"),
    ],
)
def test_a_name_is_found_by_a_part_that_only_it_has(wanted: str, found: str) -> None:
    assert choose(NAMES, wanted, "k.ptx has no kernel") == found


@pytest.mark.parametrize(
    ("wanted", "message", "hint"),
    [
        ("gemm", "'gemm' is a part of 2 names", "ns::gemm<float>"),
        ("x", "k.ptx has no kernel 'x'; it has void", None),
        ("", "''", None),
    ],
)
def test_none_or_several(wanted: str, message: str, hint: str | None) -> None:
    with pytest.raises(LaunchError) as caught:
        choose(NAMES, wanted, "k.ptx has no kernel")
    assert message in caught.value.message
    assert hint is None or hint in str(caught.value.hint)


def test_messages_have_both_names() -> None:
    assert readable("_Z4scanPi") == "scan(int*) (_Z4scanPi)"
    assert readable("scan_all") == "scan_all"


DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@pytest.mark.parametrize(
    "name",
    [
        "_Z1f1aIiE" + "".join(f"S_IS{d}_S{d}_E" for d in DIGITS),  # doubles 36 times
        "_Z1f20000" + "a" * 20000 + "S_" * 5000,
        "_ZN" + "1a" * 15000 + "Ev",
        "_Z1fI20000" + "a" * 20000 + "Ev" + "T_" * 4000,
        "_Z1fUlvE" + "9" * 5000 + "_",
        "_Z1f" + "K" * 100_000 + "i",
    ],
)
def test_names_that_would_grow_without_end_stay_as_they_are(name: str) -> None:
    assert demangle(name) == base_name(name) == name
