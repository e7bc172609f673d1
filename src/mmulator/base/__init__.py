"""The ground floor, which knows nothing of PTX: texts, places in them, errors, findings, rules, versions, the code generator.

`codegen/` is a small language whose functions become machine code; `rules/` says what the sanitizer reports; `schemas/` says what
each JSON document holds.
"""
