"""The ground floor, which knows nothing of PTX: texts and places in them, errors, findings and rules as data, versions, and the code generator.

`codegen/` is a small language whose functions become machine code; `rules/` says what the sanitizer reports; `schemas/` says what
each JSON document holds.
"""
