"""`mmulator list`: the matrix instructions there are, for a target, a type, a shape, a device."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Annotated

from mmulator.base.errors import InvalidInstructionError
from mmulator.cli.output import exclude, print_columns, print_json, print_line
from mmulator.cli.parser import Json, Option, Positional

if TYPE_CHECKING:
    from mmulator.inspect import FormGroup
    from mmulator.isa.form import Form


def list(
    words: Annotated[
        builtins.list[str] | None, Positional("As for explain: a family, a shape, types, qualifiers.", offer="instruction_words")
    ] = None,
    target: Annotated[str | None, Option("What this .target has, such as sm_90a.", "sm_NN", offer="target_names")] = None,
    ptx: Annotated[str | None, Option("What this .version has, such as 8.0.", "VERSION")] = None,
    type: Annotated[str | None, Option("An element type of A, B, C or D, such as bf16 or fp8.")] = None,
    family: Annotated[str | None, Option("mma, wgmma, wmma, tcgen05, or a matrix move: ldmatrix and others.")] = None,
    shape: Annotated[str | None, Option("A shape or part of one: m16n8k16, n128, k32.")] = None,
    sparse: Annotated[bool, Option("With sparse A.")] = False,
    dense: Annotated[bool, Option("Without sparse A.")] = False,
    device: Annotated[str | None, Option("What this device runs with known arithmetic, such as sm_89.")] = None,
    devices: Annotated[bool, Option("The devices instead: chips, instructions, evidence.")] = False,
    full: Annotated[bool, Option("Every name in full, one a line.")] = False,
    json: Json = False,
) -> None:
    """List matrix instructions, those that differ only in shape, type or a qualifier in one line.

    Examples:
        mmulator list --target sm_90a --type bf16
        mmulator list wgmma fp8 --dense
        mmulator list --family mma --device "RTX 4090" --full
        mmulator list --devices
    """
    from mmulator.inspect import group

    exclude({"--sparse": sparse, "--dense": dense}, "without either both are listed")
    exclude({"--full": full, "--json": json}, "JSON has every name")
    if devices or words == ["devices"]:
        asked = {"instructions": words if devices else None, "--target": target, "--ptx": ptx, "--type": type, "--family": family,
                 "--shape": shape, "--device": device}  # fmt: skip
        for name, value in asked.items():
            exclude({"--devices": True, name: value or None}, "all devices are listed")
        _devices(json)
        return
    side = "sparse" if sparse else "dense" if dense else ""
    if "tcgen05" in (family, *(words or [])):
        for name, value in {"--type": type, "--shape": shape}.items():
            exclude({"tcgen05": True, name: value}, "an instruction descriptor has types and shape")
        forms = _of_tcgen05([w for w in words or [] if w != "tcgen05"], target, ptx, side, device)
    else:
        forms = _forms(words or [], target, ptx, type, family, shape, side, device)
    if json:
        from dataclasses import asdict

        groups = [
            {"pattern": g.pattern, "forms": len(g.mnemonics), **asdict(g), "choices": dict(g.choices)} for g in group(forms)
        ]
        print_json("list", {"ok": True, "forms": len(forms), "groups": groups})
    elif full:
        print("\n".join(form.mnemonic for form in forms))
    else:
        _as_table(group(forms), len(forms))


def _of_tcgen05(
    words: builtins.list[str], target: str | None, ptx: str | None, side: str, device: str | None
) -> tuple[Form, ...]:
    """Forms of tcgen05 whose names have all words. Raises InvalidInstructionError where there is none."""
    from mmulator.isa.chips import as_device
    from mmulator.isa.form import forms_of
    from mmulator.isa.names.words import available
    from mmulator.isa.targets import as_pair
    from mmulator.isa.tcgen05 import ROWS
    from mmulator.matrix.inspect.explanation.arithmetic import runs_on

    wanted, version = as_pair(target, ptx)
    chip = as_device(device) if device is not None else None

    def fits(form: Form) -> bool:
        parts = form.mnemonic.split(".")
        named = all(any(part == word or part.endswith(f"::{word}") for part in parts) for word in words)
        sided = not side or ("mma" in parts and ("sp" in parts) == (side == "sparse"))
        return named and sided and (chip is None or runs_on(form, chip))

    found = tuple(f for row in ROWS if available(row, wanted, version) for f in forms_of(row) if fits(f))
    if not found:
        asked = " ".join(filter(None, (*words, side, target, ptx and f"PTX {ptx}", device)))
        raise InvalidInstructionError(f"there is no tcgen05 with `{asked}`", hint="mmulator list tcgen05 shows all")
    return found


def _forms(
    words: builtins.list[str], target: str | None, ptx: str | None, type: str | None, family: str | None, shape: str | None,
    side: str, device: str | None,
) -> tuple[Form, ...]:  # fmt: skip
    """Forms that fit the options, in the order of the tables. Raises InvalidInstructionError where none does."""
    from mmulator.isa.chips import as_device
    from mmulator.isa.matrix import FAMILIES
    from mmulator.isa.names.words import find_forms, legal_forms

    if family is not None and family not in FAMILIES:
        raise InvalidInstructionError(f"--family {family}: no such family", hint=f"one of {', '.join((*FAMILIES, 'tcgen05'))}")
    if device is not None:
        device = as_device(device)
    query = " ".join(filter(None, (family, *words, shape, type, side)))
    forms = legal_forms(target, ptx)
    if not forms:
        what = " and ".join(filter(None, (target and f".target {target}", ptx and f"PTX {ptx}")))
        hint = "they begin with sm_70 and PTX 6.0"
        raise InvalidInstructionError(f"there are no matrix instructions for {what}", hint=hint)
    if query:
        fitting = frozenset(find_forms(query, target, ptx))
        forms = tuple(form for form in forms if form in fitting)
    if device is not None:
        from mmulator.matrix.inspect.explanation.arithmetic import runs_on

        forms = tuple(form for form in forms if runs_on(form, device))
        if not forms:
            raise InvalidInstructionError(f"nothing that fits `{query}` runs on {device}")
    return forms


def _devices(json: bool) -> None:
    from mmulator.matrix.inspect.explanation.arithmetic import KINDS, LETTERS, devices

    if json:
        print_json("devices", {"ok": True, "devices": [d.to_dict() for d in devices()]})
        return
    rows = [(d.sm, *(LETTERS.get(d.evidence.get(kind, ""), "") for kind in KINDS), ", ".join(d.chips)) for d in devices()]
    print_columns(("device", *KINDS, "chips"), rows, breaks=" ")
    said = "; ".join(f"{letter} {word}" for word, letter in LETTERS.items())
    print_line(f"how bits are known: {said}; empty: it has no such instruction. mx: block-scaled FP4, sp: sparse f16, int: s8")
    print_line("--device takes a device or the name of a chip: sm_90, H100, 'RTX 4090'")


def _as_table(groups: tuple[FormGroup, ...], count: int) -> None:
    rows = [(str(len(g.mnemonics)), g.targets, g.ptx, g.pattern) for g in groups]
    print_columns(("forms", "target", "PTX", "instruction, without .sync.aligned"), rows, breaks=".")
    print_line(f"{count} form{'s' if count != 1 else ''}; {{.x}} may be left out, .{{x,y}} is a choice; --full prints every name")
