"""Fields of each JSON document, and its JSON Schema."""

import json
from typing import Any

from mmulator.base.schemas import VERSIONS, named

# shapes of JSON values, from which JSON Schemas are made ------------------------------------------------------------------
Shape = dict[str, Any]

TEXT: Shape = {"type": "string"}
WHOLE: Shape = {"type": "integer"}
FLAG: Shape = {"type": "boolean"}
NONE: Shape = {"type": "null"}
ANY: Shape = {}
NUMBER: Shape = {"anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}]}  # JSON has no such numbers
_PLAIN = {"text": TEXT, "whole": WHOLE, "flag": FLAG, "number": NUMBER, "texts": {"type": "array", "items": TEXT},
          "wholes": {"type": "array", "items": WHOLE}, "any": ANY}  # fmt: skip
_OPTIONAL = "optional"


def record(*plain: str, **others: Shape) -> Shape:
    """An object. plain: `text: a b`, fields of one shape each. others: shapes of further fields."""
    shapes = {name: _PLAIN[kind] for line in plain for kind, _, names in [line.partition(": ")] for name in names.split()}
    shapes |= others
    needed = [name for name, shape in shapes.items() if _OPTIONAL not in shape]
    properties = {name: {key: value for key, value in shape.items() if key != _OPTIONAL} for name, shape in shapes.items()}
    return {"type": "object", "properties": properties, "required": needed}


def optional(shape: Shape) -> Shape:
    """The shape of a field that may be left out."""
    return {**shape, _OPTIONAL: True}


def many(shape: Shape) -> Shape:
    """A list."""
    return {"type": "array", "items": shape}


def by_name(shape: Shape) -> Shape:
    """An object whose fields have names that the data choose."""
    return {"type": "object", "additionalProperties": shape}


def either(*shapes: Shape) -> Shape:
    """One of several shapes."""
    return {"anyOf": [*shapes]}


def or_none(shape: Shape) -> Shape:
    """A shape, or null."""
    return either(shape, NONE)


def one_of(*texts: str) -> Shape:
    """One of several texts."""
    return {"enum": [*texts]}


def part(name: str) -> Shape:
    """A shape of PARTS, which may be inside itself."""
    return {"$ref": f"#/$defs/{name}"}


def versioned(name: str, shape: Shape) -> Shape:
    """A document: an object with the field `schema`."""
    major = VERSIONS[name][0]
    schema = {"type": "string", "pattern": rf"^mmulator\.{name}/{major}\.[0-9]+$"}
    return {**shape, "properties": {"schema": schema, **shape["properties"]}, "required": ["schema", *shape["required"]]}


# places and findings ----------------------------------------------------------------------------------------------------
_CALL = record("text: file", "whole: line column", function=or_none(TEXT))
_SOURCE = record("text: file", "whole: line column", function=or_none(TEXT), text=or_none(TEXT), inlined_at=many(_CALL))
_PLACE = record("text: file text", "whole: line column", source=or_none(_SOURCE))
_ACCESS = "text: instruction location source threads"
_SEVERITY = one_of("error", "warning", "note")
_FINDING = record(
    _ACCESS, "text: rule message where hint", "whole: seed count", "wholes: seeds",
    severity=_SEVERITY, place=or_none(_PLACE), conflict=or_none(record(_ACCESS, place=or_none(_PLACE))),
    group=optional(WHOLE), kernel=optional(TEXT), reason=optional(TEXT),
)  # fmt: skip
_ERROR = record(
    "text: kind message", file=or_none(TEXT), line=or_none(WHOLE), column=or_none(WHOLE), caret=or_none(TEXT),
    source=or_none(_SOURCE), rule=or_none(TEXT), hint=or_none(TEXT),
)  # fmt: skip
FINDINGS = versioned("findings", record(
    "whole: errors warnings known", "wholes: seeds", "texts: rules unused_suppressions", findings=many(_FINDING),
    suppressed=many(_FINDING), not_told=by_name(WHOLE),
))  # fmt: skip

# one value --------------------------------------------------------------------------------------------------------------
_TERM = record(
    "text: source value cut", "whole: number", significand=or_none(WHOLE), exponent=or_none(WHOLE), fraction=or_none(WHOLE),
    aligned=or_none(WHOLE), kept=or_none(WHOLE), k=optional(WHOLE), a=optional(WHOLE), b=optional(WHOLE),
)  # fmt: skip
_STEP = record(
    "text: operation value", "whole: total", emax=or_none(WHOLE), quantum=or_none(WHOLE), special=or_none(TEXT),
    rounding=or_none(record("text: dtype mode", "flag: signed_zero ieee", keep=or_none(WHOLE))), scale=or_none(TEXT),
    zero=or_none(WHOLE), bits=or_none(WHOLE), terms=many(part("term")),
)  # fmt: skip
_SUM = record(
    "text: device value exact", "whole: sign bits c", "wholes: scale_a scale_b", arithmetic=by_name(ANY), profile=by_name(ANY),
    steps=many(part("step")),
)  # fmt: skip
_CAUSE_AT = record("text: file source quoted", "whole: line step", "wholes: block thread")
_CAUSE = record(
    "text: name type value how", "whole: bits products", "texts: remarks", "flag: more", at=or_none(_CAUSE_AT),
    sum=or_none(part("sum")), inputs=many(part("cause")),
)  # fmt: skip
PARTS = {"term": _TERM, "step": _STEP, "sum": _SUM, "cause": _CAUSE}
_A_CAUSE = or_none(part("cause"))
CAUSE = versioned("cause", record(
    "text: element", "texts: notes sources", cause=_A_CAUSE,
    birth=optional(or_none(record("text: kind said", "flag: made", "texts: of"))),
    losses=optional(many(record("text: kind said value"))), beside=optional(record(
        "text: label said", cause=_A_CAUSE, here=_A_CAUSE, there=_A_CAUSE, want=optional(ANY),
    )),
))  # fmt: skip
WHY = versioned("why", record(
    "text: instruction", "whole: row col numpy", "texts: apart", ok=optional(FLAG), groups=many(many(TEXT)),
    devices=by_name(part("sum")), bounds=optional(by_name(record(error=or_none(NUMBER), bound=or_none(NUMBER)))),
))  # fmt: skip

# a launch ---------------------------------------------------------------------------------------------------------------
_TRAFFIC = record("whole: requests lanes bytes units ideal")
_TALLY = record("whole: executions lanes off macs met polls taken passed parted", traffic=by_name(_TRAFFIC))
PROFILE = versioned("profile", record(
    "text: kernel device file", "wholes: grid block cluster", "whole: shared launches",
    instructions=many(record("whole: line source_line", "text: text function file source", "flag: branch", work=_TALLY)),
    occupancy=record("whole: warps most blocks registers", "text: limit"), total=_TALLY,
))  # fmt: skip
_CERTIFICATE = record(
    "whole: tried", "texts: rests_on", verdict=one_of("certified", "explored", "not decided", "counterexample"),
    reasons=many(record("text: why location source")), schedule=or_none(record(
        "whole: seed", order=or_none(either(WHOLE, many(WHOLE))))),
    needed=or_none(many(record(
        "text: source instruction reason", "whole: line", "wholes: lines", "texts: rests_on", "flag: together",
        verdict=one_of("needed", "not needed", "not known"),
    ))),
    kernel=optional(TEXT),
)  # fmt: skip
_CERTIFICATES = record(
    "text: verdict", launches=record(**{"explored": WHOLE, "certified": WHOLE, "not decided": WHOLE, "counterexample": WHOLE}),
    open=many(_CERTIFICATE), needed=many(_CERTIFICATE),
)  # fmt: skip
_STORE = record("whole: argument line bits", "wholes: index block thread", "text: instruction file source", "any: value")
REPORT = versioned("report", record(
    "text: kernel device output", "wholes: grid block cluster", "whole: shared seed threads macs", "flag: cached",
    "texts: notes refused", instructions=by_name(WHOLE), seconds=record("number: parse compile run"), stores=many(_STORE),
    why=many(CAUSE), findings=optional(many(_FINDING)), profile=optional(PROFILE), certificate=optional(_CERTIFICATE),
    process=optional(WHOLE), launch=optional(WHOLE), finished=optional(NUMBER), name=optional(TEXT),
))  # fmt: skip
_KERNEL_RUNS = many(record("text: kernel device", "whole: launches instructions macs", "number: run compile"))
_OUTPUT = record(
    "text: name", "whole: seed size wrong beyond", "flag: ok stored", "any: got want",
    first=or_none(many(WHOLE)), ulps=or_none(WHOLE),
)  # fmt: skip
MUTANT = record("text: kind change source statement was state words", "whole: line", place=optional(TEXT))
MUTATE = record("flag: interrupted", tests=many(record("text: test why", kernels=many(record(
    "text: kernel file vacuous", "texts: passes", mutants=many(MUTANT),
)))))  # fmt: skip
JUDGE = versioned("judge", record(
    "flag: ok", "text: message device output", "wholes: seeds", "texts: notes not_enforced",
    outcome=one_of(
        "right", "wrong", "vacuous", "undefined", "unstable", "fault", "refused", "timeout", "memory", "failed", "crashed"
    ),
    kind=one_of("kernel", "program"), drawn=or_none(WHOLE), outputs=many(_OUTPUT), findings=many(_FINDING),
    report=either(REPORT, record(kernels=optional(_KERNEL_RUNS), certificates=optional(_CERTIFICATES))), seconds=by_name(NUMBER),
    mutants=optional(either(record("flag: more", counts=by_name(WHOLE), mutants=many(MUTANT)), record())),
    bounds=optional(by_name(record(
        "whole: unbounded", "text: reason", rtol=or_none(NUMBER), atol=or_none(NUMBER), beyond=optional(WHOLE),
    ))),
))  # fmt: skip
_COMPARISON = record(
    "text: name", "whole: size wrong beyond specials", "any: got want", "flag: ok", first=or_none(many(WHOLE)), worst=NUMBER,
    ulps=many(many(ANY)), where=many(TEXT), largest=NUMBER, most=or_none(WHOLE),
)  # fmt: skip
_GPU = record("text: name device target ptx", "any: cuda driver")
RUN = record(
    "flag: ok", report=REPORT, sanitizer=optional(FINDINGS), comparisons=optional(many(_COMPARISON)),
    not_compared=optional(many(TEXT)), arrays=optional(either(
        by_name(record("text: dtype", "wholes: shape", "any: values")), many(by_name(ANY)),
    )),
    watched=optional(many(record("text: argument", "wholes: index", "whole: stores"))), gpu=optional(_GPU),
    bounds=optional(by_name(record(
        "text: output reason", "whole: elements unbounded", "texts: rests_on", rtol=or_none(NUMBER), atol=or_none(NUMBER),
        largest_bound=or_none(NUMBER), largest_error=or_none(NUMBER),
    ))),
)  # fmt: skip
_PRODUCTS = record(
    "whole: products known not_known", "text: first", kinds=many(record("text: kind", "whole: known not_known")),
    operators=many(record("text: operator why", "whole: calls")),
)  # fmt: skip
EXEC = record(
    "flag: ok", "whole: exit_code sanitized_launches known", kernels=_KERNEL_RUNS, findings=many(_FINDING),
    refused=optional(many(record("text: why", "whole: launches calls", "flag: handled"))),
    profiles=optional(many(PROFILE)), next=optional(TEXT), certificates=optional(_CERTIFICATES),
    why=optional(many(record("text: asked said kernel", answer=or_none(CAUSE)))), products=optional(_PRODUCTS),
    library_calls=optional(record("whole: calls", not_promised=by_name(WHOLE))),
)  # fmt: skip
_STOP = record(
    "text: reason kernel text", "whole: step launch block warp lane lanes site", ptx_line=or_none(WHOLE), file=or_none(TEXT),
    line=or_none(WHOLE), breakpoints=many(ANY),
)  # fmt: skip

# instructions -----------------------------------------------------------------------------------------------------------
_PARAMETER = record("text: name", "whole: offset size align", "wholes: shape", type=or_none(TEXT), pointer=or_none(TEXT))
_KERNEL = record(
    "text: name cpp_name", "whole: line shared_bytes const_bytes local_bytes instructions", "texts: calls",
    "flag: dynamic_shared", parameters=many(_PARAMETER), registers=by_name(WHOLE), directives=by_name(many(ANY)),
    matrix_instructions=by_name(WHOLE),
)  # fmt: skip
CHECK = record(
    "flag: ok", "text: file version target", kernels=many(_KERNEL), errors=many(_ERROR), findings=many(_FINDING),
    unsupported=many(record("text: name text reason", "whole: line column", section=or_none(TEXT))),
)  # fmt: skip
_GROUP = record("text: pattern instruction targets ptx", "whole: forms", "texts: target_names mnemonics",
                choices=by_name(many(TEXT)))  # fmt: skip
_DEVICE = record("text: name sm", "texts: chips families", evidence=by_name(TEXT))
_RULE = {
    **dict.fromkeys(("name", "topic", "title", "section", "text", "hint"), TEXT), "number": WHOLE, "static": FLAG,
    "severity": _SEVERITY, "right": or_none(many(TEXT)), "wrong": or_none(many(TEXT)),
}  # fmt: skip
_OPERAND = record(
    "text: name kind direction type what", "whole: registers rows columns lanes per_register", "texts: types",
    values=or_none(many(WHOLE)), element=or_none(TEXT),
)  # fmt: skip
_ARITHMETIC = record(
    "text: device chip method confidence words note", chunk=or_none(WHOLE), fraction=or_none(WHOLE), floor=or_none(WHOLE),
    rounding=or_none(TEXT), nan=or_none(WHOLE),
)  # fmt: skip
EXPLAIN = record(
    "flag: ok", "text: query mnemonic family section computes requires ptx_version cuda_head ptx cuda", "wholes: shape",
    "whole: macs threads", "texts: signatures matches", targets=many(many(TEXT)), operands=many(_OPERAND),
    arithmetic=many(_ARITHMETIC), rules=many(record("text: text section", "flag: undefined")),
    snippets=many(record("text: title ptx cuda")), related=many(record("text: relation instruction also")),
)  # fmt: skip
_ELEMENTS = many(record("whole: row column copy", holders=many(
    record("whole: lane register index", "wholes: bits", "text: name"),
)))  # fmt: skip
LAYOUT = record(
    "flag: ok", "text: instruction operand kind type device section evidence", "texts: notes",
    "whole: rows columns copies lanes registers register_bits", rule=by_name(TEXT), columns_of_a=or_none(many(many(WHOLE))),
    cute=or_none(TEXT), elements=_ELEMENTS,
)  # fmt: skip
_FIELDS = many(record("text: name bits value", "whole: raw"))
_REMARKS = many(record("text: level text rule hint"))
_BANKS = record(
    "text: kind", "whole: accesses wavefronts least ways",
    worst=record("text: label", "whole: bytes", "wholes: addresses", phases=many(
        record("wholes: lanes", "whole: wavefronts", conflicts=many(record("whole: bank", "wholes: lanes"))),
    )),
)  # fmt: skip
_MAYBE_TEXT, _MAYBE_WHOLE = optional(or_none(TEXT)), optional(or_none(WHOLE))
DESCRIPTOR = record(
    "flag: ok", "text: word swizzle reserved_bits", "whole: start_address leading_byte_offset stride_byte_offset base_offset",
    fields=_FIELDS, findings=_REMARKS, accesses=many(_BANKS), operand=_MAYBE_TEXT, instruction=_MAYBE_TEXT, type=_MAYBE_TEXT,
    major=_MAYBE_TEXT, rows=_MAYBE_WHOLE, columns=_MAYBE_WHOLE, atom=optional(record("whole: mn k")), pattern_start=_MAYBE_WHOLE,
    base_offset_meaning=_MAYBE_TEXT, first_byte=_MAYBE_WHOLE, last_byte=_MAYBE_WHOLE, cute=_MAYBE_TEXT,
    offsets=optional(many(record("text: field along text rule", "whole: bytes every steps", encoded=or_none(WHOLE)))),
    elements=optional(many(record("wholes: element", "whole: address"))),
    addresses=optional(many(record("whole: address", elements=many(many(WHOLE))))), from_cute=optional(or_none(record(
        "text: layout operand major", "whole: elements_compared", canonical=or_none(TEXT), remark=or_none(TEXT),
        tiles=many(record(
            "whole: mn k stage start_address leading_byte_offset stride_byte_offset base_offset", "text: word swizzle",
        )),
    ))),
)  # fmt: skip
TENSORMAP = record(
    "flag: ok", "text: bytes mode type interleave swizzle l2_promotion oob_fill driver_call",
    "wholes: shape strides element_strides", "whole: address box_bytes shared_bytes alignment", findings=_REMARKS,
    fields=many(record("text: name where value", "whole: raw")), box=optional(many(WHOLE)), lower=optional(ANY),
    upper=optional(ANY), channels=optional(WHOLE), pixels=optional(WHOLE),
)  # fmt: skip
BOX = record(
    "flag: ok store", "text: map mode", "wholes: coordinates offsets box_shape", "whole: shared unit_bytes units_outside",
    chunks=many(record("whole: address units inside", "wholes: element")),
    elements=many(record("wholes: element addresses")), bytes=many(record("whole: address", elements=many(many(WHOLE)))),
)  # fmt: skip
_NIBBLE = record("wholes: bits columns keeps", "whole: row chunk", "flag: defined", "text: meaning", value=or_none(WHOLE))
_WORD = {
    "instruction": TEXT, "lane": WHOLE, "selector": WHOLE, "word": or_none(WHOLE), "nibbles": many(_NIBBLE),
    "hex": or_none(TEXT), "contributes": FLAG, "defined": FLAG,
}  # fmt: skip

DOCUMENTS: dict[str, Shape] = {
    "report": REPORT, "findings": FINDINGS, "why": WHY, "cause": CAUSE, "profile": PROFILE, "judge": JUDGE, "mutate": MUTATE,
    "run": RUN, "exec": EXEC, "check": CHECK, "explain": EXPLAIN, "layout": LAYOUT, "descriptor": DESCRIPTOR,
    "tensormap": TENSORMAP, "tensormap-box": BOX,
    "profiles": record(profiles=many(PROFILE)),
    "conformance": record("flag: ok", runs=many(record(
        "flag: ok complete", "whole: left", "text: mmulator date", gpu=_GPU, run=by_name(ANY), seconds=NUMBER,
        totals=by_name(WHOLE),
        groups=many(record("text: group verdict", "whole: forms cases words wrong different errors", seconds=NUMBER)),
        forms=many(by_name(ANY)), observations=many(record("text: probe question error", answer=by_name(WHOLE))),
        not_on_this_gpu=ANY,
    ))),
    "library": record(
        "flag: ok", "whole: seed cases known different", "text: mmulator date gpu device torch cuda", seconds=NUMBER,
        shares=by_name(NUMBER), kinds=many(record("text: kind", "whole: cases known different")),
        differences=many(record("text: type call layout kind", "whole: number m n k batch elements different", "flag: cancels")),
    ),
    "debug": record("text: command", "texts: output", error=optional(TEXT), stop=optional(_STOP)),
    "list": record("flag: ok", "whole: forms", groups=many(_GROUP)),
    "devices": record("flag: ok", devices=many(_DEVICE)),
    "topic": record("flag: ok", "text: name page section", "texts: also text picture", commands=many(many(TEXT))),
    "rules": record("flag: ok", rules=many(record(**_RULE))),
    "rule": record("flag: ok", **_RULE),
    "compare": record("text: instruction", devices=many(by_name(TEXT)), why=or_none(WHY)),
    "same": record(
        "flag: ok", "text: grade element reason", "whole: elements", "texts: lines parts rests_on",
        counterexample=or_none(record("text: element", "texts: values", "whole: ulps differing")),
    ),
    "compare-builds": record(
        "flag: ok", builds=many(record("text: name", "whole: launches", versions=by_name(TEXT), exit_code=or_none(WHOLE))),
        kernels=many(record(
            "text: kernel grade reason fusion", "texts: lines rests_on", instructions=by_name(many(WHOLE)),
            bits=one_of("same bits", "other bits", "other inputs", "not compared"), launches=many(record(
                "whole: first second", "text: test note", other_inputs=or_none(many(TEXT)), outputs=or_none(FLAG),
                arrays=many(record("text: name", "whole: size differ ulps specials", "wholes: first", "texts: values")),
            )),
        )), alone=many(many(record("whole: launch", "text: kernel test"))),
    ),
    "same-configs": record(
        "text: kernel", "whole: results", configs=many(record("text: grade said", "whole: result", config=by_name(ANY)))
    ),
    "reduce": record(
        "flag: ok whole", "text: failure rule instruction launch", "texts: options", "whole: tries", before=by_name(ANY),
        after=by_name(ANY),
    ),
    "layout-element": record(
        "flag: ok", "text: instruction operand", elements=_ELEMENTS,
        otherwise=optional(record("text: instruction", elements=_ELEMENTS)),
    ),
    "layout-cute": record("flag: ok", "text: instruction operand cute meaning"),
    "instruction-descriptor": record(
        "flag: ok", "text: word instruction kind", fields=_FIELDS, descriptor=or_none(by_name(ANY)), findings=_REMARKS
    ),
    "tensormap-check": record("flag: ok", "text: map", "whole: box_bytes", instruction=or_none(TEXT), findings=_REMARKS),
    "sparse-check": record(
        "flag: ok", "text: instruction dtype rule", "wholes: shape", "whole: chunks too_dense", zeros=NUMBER,
        first=many(record("wholes: batch columns", "whole: row chunk", "texts: values")),
    ),
    "sparse-file": record(
        "flag: ok", "text: file", arrays=by_name(record("text: dtype", "wholes: shape")), set_to_zero=optional(WHOLE)
    ),
    "sparse-lanes": record("flag: ok", "text: instruction", lanes=many(record(**_WORD))),
    "sparse-word": record("flag: ok", **_WORD),
    "explore": record("flag: ok", "text: url"),
    "explore-export": record("flag: ok", "text: folder", "whole: files bytes"),
    "doctor": record("flag: ok", "text: version", parts=many(record("text: name state said todo"))),
    "cache": record("flag: ok used", "whole: entries bytes", folder=or_none(TEXT), reason=or_none(TEXT)),
    "cache-clear": record("flag: ok", "text: folder", "whole: removed bytes"),
    "schemas": record("flag: ok", "texts: schemas"),
    "error": record(
        "flag: ok", errors=many(_ERROR), sanitizer=optional(FINDINGS), certificate=optional(_CERTIFICATE),
    ),
}  # fmt: skip


def schema_of(name: str) -> dict[str, Any]:
    """The JSON Schema of a document. Raises KeyError for another name than those of VERSIONS."""
    shape = DOCUMENTS[name]
    whole = shape if "schema" in shape["properties"] else versioned(name, shape)
    parts = {"$defs": PARTS} if '"$ref"' in json.dumps(whole) else {}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": named(name), **whole, **parts}


assert DOCUMENTS.keys() == VERSIONS.keys()
