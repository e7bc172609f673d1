"""Names of a kernel's parameters in its source of C++: known where one definition has the kernel's lines and fits, else none."""

from pathlib import Path

import pytest

import mmulator as mm
from mmulator.ptx.program.parameters import called, kinds, names

SAXPY = "_Z5saxpyifPKfPf", "u32 f32 u64 u64"
# (source, kernel, types of its parameters, line of its first instruction, names)
CASES = {
    "plain": ("__global__ void saxpy(int n, float a, const float *x, float* __restrict__ y)\n{\n}", *SAXPY, 2, "n a x y"),
    "comments and lines": (
        "__global__ void saxpy(int n, // saxpy(int n,\n  float a /* ) */,\n  const float *x, float *y) {\n  y[0] = ')';\n}",
        *SAXPY, 4, "n a x y",
    ),
    "two branches": (
        "#if A\n__global__ void saxpy(int n, float a, const float *x, float *y) {\n}\n#else\n"
        "__global__ void saxpy(int count, float by, const float *from, float *to) {\n}\n#endif",
        *SAXPY, 5, "count by from to",
    ),
    "another line": ("__global__ void saxpy(int n, float a, const float *x, float *y)\n{\n}\n\nMAKE(saxpy)", *SAXPY, 5, ""),
    "declaration": ("void saxpy(int n, float a, const float *x, float *y);\n\nint main() {\n}", *SAXPY, 1, ""),
    "other types": ("__global__ void saxpy(int n, float *a, const float x, float *y) {\n}", *SAXPY, 1, ""),
    "other order": ("__global__ void saxpy(float a, int n, const float *x, float *y) {\n}", *SAXPY, 1, ""),
    "fewer": ("__global__ void saxpy(int n, float a, const float *x) {\n}", *SAXPY, 1, ""),
    "without a name": ("__global__ void saxpy(int, float a, const float *x, float *y) {\n}", *SAXPY, 1, ""),
    "directive": ("__global__ void saxpy(int n, float a,\n#if A\nconst float *x, float *y) {\n#endif\n}", *SAXPY, 4, ""),
    "template": (
        "namespace ns {\ntemplate <class T, int N = 4>\n__global__ void __launch_bounds__(128) k(T *out, const T* in, S s,\n"
        "    unsigned long long count = 3, const unsigned n = 1)\n{ k(out); }\n}",
        "_ZN2ns1kIfLi4EEEvPT_PKS1_NS_1SEyj", "u64 u64 u64 u64 u32", 5, "out in s count n",
    ),
    "map": (
        "__global__ void gemm(const __grid_constant__ CUtensorMap ma, const __grid_constant__ CUtensorMap mb, float C[]) {\n}",
        "_Z4gemm14CUtensorMap_stS_Pf", "b128 b128 u64", 1, "ma mb C",
    ),
    "of C": ('extern "C" __global__ void e(half *b, long n, char c) {\n}', "e", "u64 u64 u8", 1, "b n c"),
    "of C, other size": ('extern "C" __global__ void e(half *b, int n, char c) {\n}', "e", "u64 u64 u8", 1, ""),
    "function": ('extern "C" __global__ void e(half (*b)[4], long n, char c) {\n}', "e", "u64 u64 u8", 1, ""),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_names_are_those_of_the_definition_that_fits(name: str, tmp_path: Path) -> None:
    source, kernel, types, line, known = CASES[name]
    (tmp_path / "k.cu").write_text(source)
    each = [f".{t}" if t != "b128" else ".align 64 .b8" for t in types.split()]
    params = ", ".join(f".param {t} {kernel}_param_{n}{'[128]' * ('b8' in t)}" for n, t in enumerate(each))
    (tmp_path / "k.ptx").write_text(
        f'.version 8.0\n.target sm_90\n.address_size 64\n.visible .entry {kernel}({params})\n{{\n.loc 1 {line} 0\nret;\n}}\n'
        f'.file 1 "{tmp_path / "k.cu"}"\n'
    )  # fmt: skip
    function = mm.Module.load(tmp_path / "k.ptx")[kernel].function
    assert " ".join(names(function)) == known
    assert [*called(function)] == (known.split() or [f"{kernel}_param_{n}" for n in range(len(each))])
    (tmp_path / "k.cu").unlink()
    assert not names(function)


def test_types_of_parameters_and_of_what_they_point_to() -> None:
    assert kinds("_Z3mmaPfPK6__halfP13__nv_bfloat16iPvPPKfy") == [
        ("f32", True), ("f16", True), ("bf16", True), ("s32", False), ("", True), ("", True), ("u64", False)
    ]  # fmt: skip
    assert kinds("mma") == []
