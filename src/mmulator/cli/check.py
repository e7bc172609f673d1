"""`mmulator check`: reads and verifies a PTX module, and says what is in it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

from mmulator.cli.parser import Given, Option, Positional, RowsOf

if TYPE_CHECKING:
    from mmulator.base.errors import InvalidInstructionError
    from mmulator.base.findings import Finding
    from mmulator.isa.targets import Target
    from mmulator.ptx.program.runnable import Unsupported
    from mmulator.ptx.tree import Function, ParsedModule


def check(
    file: Annotated[str, Positional("PTX, .cu, program, library; - for standard input.")],
    given: Annotated[Given, RowsOf("check")],
    target: Annotated[str | None, Option("Verify for this target, such as sm_90a.", "sm_NN", offer="target_names")] = None,
    entry: Annotated[str | None, Option("Describe this kernel alone; a part of its C++ name will do.", "NAME")] = None,
) -> None:
    """Verify a PTX module: every instruction and operand, for its .target and .version.

    The PTX may lie in a program, library, object, fatbin or cubin; nvcc compiles a .cu.

    Lists the kernels with their parameters and resources, the instructions that cannot be run, and undefined behaviour that
    is certain without a run. The exit code is 0 only if the module is valid and everything in it can be run; it is 3 if
    it is, and has undefined behaviour of severity error.

    Examples:
        mmulator check examples/hopper_gemm/gemm.ptx
    """
    import shlex
    from dataclasses import replace

    from mmulator.base.names import choose
    from mmulator.base.source import Source
    from mmulator.cli.findings import baseline as read
    from mmulator.cli.findings import check_sarif, code_of, write_sarif
    from mmulator.cli.output import exclude, read_bytes
    from mmulator.host.text import loading_within
    from mmulator.isa.targets import default_device
    from mmulator.ptx.parser import parse_module
    from mmulator.ptx.program.runnable import unsupported
    from mmulator.ptx.program.static import static_findings
    from mmulator.ptx.text import text_of
    from mmulator.ptx.verify import verify

    exclude({"--sarif -": given.sarif == "-", "--json": given.json}, "both write to standard output")
    check_sarif(given.sarif)
    known = read(given.baseline)
    name = "<stdin>" if file == "-" else file
    with loading_within(given.timeout, name):
        device = None if target is None else default_device(_target(target))
        module = parse_module(Source(*text_of(read_bytes(file), name, device, entry, shlex.split(given.nvcc_flags or ""))))
        if target is not None:
            module = replace(module, target=_target(target))
        kernels = module.entries
        if entry is not None:
            name = choose([k.name for k in kernels], entry, f"{file} has no kernel")
            kernels = tuple(k for k in kernels if k.name == name)
        errors = verify(module)
        wrong = {e.span.line for e in errors if e.span}
        missing = tuple(u for u in unsupported(module) if u.span.line not in wrong)  # what is wrong is said once
        found = static_findings(module) if not errors else ()
    if given.sarif is not None:
        write_sarif(given.sarif, found, known=known)
    found = tuple(known.new(found)) if known is not None else found
    if given.sarif != "-":
        (_as_json if given.json else _as_text)(module, kernels, errors, missing, found)
    code = 1 if errors or missing else code_of(found)
    if code:
        sys.exit(code)


def _target(text: str) -> Target:
    from mmulator.base.errors import MmulatorError
    from mmulator.isa.targets import Target

    try:
        return Target.parse(text)
    except ValueError as error:
        raise MmulatorError(str(error)) from None


def _kernel_data(module: ParsedModule, kernel: Function) -> dict[str, Any]:
    from mmulator.base.demangle import demangle
    from mmulator.ptx.resources import parameter_offsets, resources

    found = resources(module, kernel)
    return {
        "name": kernel.name, "cpp_name": demangle(kernel.name), "line": kernel.span.line,
        "parameters": [
            {"name": p.name, "type": p.type, "shape": list(p.shape), "offset": offset, "size": p.size, "align": p.align,
             "pointer": p.pointer_space or "generic" if p.is_pointer else None}
            for p, offset in zip(kernel.params, parameter_offsets(kernel.params))
        ],
        "registers": found.registers, "shared_bytes": found.shared, "dynamic_shared": found.dynamic_shared,
        "const_bytes": found.const, "local_bytes": found.local,
        "directives": {name: list(values) for name, values in found.threads.items()}, "instructions": found.instructions,
        "matrix_instructions": found.matrix_instructions, "calls": list(found.calls),
    }  # fmt: skip


def _as_json(
    module: ParsedModule, kernels: tuple[Function, ...], errors: tuple[InvalidInstructionError, ...],
    missing: tuple[Unsupported, ...], findings: tuple[Finding, ...],
) -> None:  # fmt: skip
    from mmulator.cli.output import error_data, print_json

    print_json("check", {
        "ok": not errors and not missing and not any(f.is_error for f in findings),
        "file": module.source.name, "version": ".".join(map(str, module.version)), "target": str(module.target),
        "kernels": [_kernel_data(module, kernel) for kernel in kernels], "errors": [error_data(e) for e in errors],
        "unsupported": [
            {"name": u.name, "line": u.span.line, "column": u.span.column, "text": u.span.text, "reason": u.reason,
             "section": u.section} for u in missing
        ],
        "findings": [f.as_dict() for f in findings],
    })  # fmt: skip


def _as_text(
    module: ParsedModule, kernels: tuple[Function, ...], errors: tuple[InvalidInstructionError, ...],
    missing: tuple[Unsupported, ...], findings: tuple[Finding, ...],
) -> None:  # fmt: skip
    from mmulator.cli.output import error_text, narrow, print_table, width

    version = ".".join(map(str, module.version))
    print(f"{module.source.name.removeprefix('PTX of ')}: PTX {version}, .target {module.target}, kernels: {len(module.entries)}")
    for kernel in kernels:
        print()
        _kernel_text(_kernel_data(module, kernel))
    if missing:
        print()
        lines: dict[tuple[str, str], list[int]] = {}
        for u in missing:
            lines.setdefault((u.name, u.reason), []).append(u.span.line)
        rows = [(name, len(at), reason, ", ".join(map(str, at))) for (name, reason), at in lines.items()]
        what = "1 instruction" if len(missing) == 1 else f"{len(missing)} instructions"
        print_table(f"{what} cannot be run", ("instruction", "count", "reason", "lines"), rows)
    for error in errors:
        print(f"\n{error_text(error, width() if narrow() else None)}")
    if errors:
        print(f"\n{len(errors)} error{'s' * (len(errors) > 1)}")
    if findings:
        from mmulator.base.findings import counted
        from mmulator.cli.findings import print_paragraphs

        print_paragraphs(findings)
        print(f"\n{counted(findings)}")


def _type(parameter: dict[str, Any]) -> str:
    return f".{parameter['type']}" + "".join(f"[{n}]" for n in parameter["shape"])


def _kernel_text(kernel: dict[str, Any]) -> None:
    from mmulator.base.demangle import demangle
    from mmulator.cli.output import print_columns, print_line, print_table

    print_line(f"{kernel['name']} (line {kernel['line']}): {kernel['instructions']} instructions")
    if kernel["cpp_name"] != kernel["name"]:
        print_line(f"  {kernel['cpp_name']}")
    for name, values in kernel["directives"].items():
        print(f"  .{name} {', '.join(map(str, values))}".rstrip())
    registers = ", ".join(f"{count} .{type}" for type, count in kernel["registers"].items())
    print_line(f"  registers: {registers or 'none'}")
    shared = f"{kernel['shared_bytes']} bytes" + (" and what the launch gives" if kernel["dynamic_shared"] else "")
    print_line(f"  shared: {shared}; const: {kernel['const_bytes']} bytes; local: {kernel['local_bytes']} bytes")
    if kernel["calls"]:
        print_line(f"  calls: {', '.join(map(demangle, kernel['calls']))}")
    print_table(
        "  parameters",
        ("  ", "name", "type", "offset", "bytes", "pointer"),
        [
            (f"  {i}", p["name"], _type(p), p["offset"], p["size"], p["pointer"] or "")
            for i, p in enumerate(kernel["parameters"])
        ],
    )
    rows = [(f"  {n}", m) for m, n in kernel["matrix_instructions"].items()]
    if rows:
        print("  matrix instructions")
        print_columns(("  count", "instruction"), rows, breaks=".")
