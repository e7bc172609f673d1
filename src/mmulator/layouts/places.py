"""Fragments whose registers lie in memory one after another: the place of every element, and the element at every place."""

import numpy as np
from numpy.typing import NDArray

from mmulator.isa.form import Form
from mmulator.layouts.fragments import Fragment
from mmulator.layouts.operands import fragment

Index = NDArray[np.int64]

# How registers lie in memory: register after register with its lanes together, or lane after lane with its registers.
BY_REGISTER, BY_LANE = "by register", "by lane"


def _place(f: Fragment, lane: Index, register: Index, index: Index, order: str) -> Index:
    word = register * f.lanes + lane if order == BY_REGISTER else lane * f.registers + register
    return word * f.per_register + index


def operand_places(form: Form, name: str, transposed: bool = False, order: str = BY_REGISTER) -> Index:
    """For each matrix element (copies, rows, columns) its place in the registers, counted in elements.

    form, name: the form and its operand.
    transposed: whether the result is in the order (copies, columns, rows).
    order: order of registers in memory.
    """
    f = fragment(form, name)
    copies, rows, columns = np.meshgrid(np.arange(f.copies), np.arange(f.rows), np.arange(f.columns), indexing="ij")
    places = _place(f, *f.locate(rows, columns, copies), order)
    return places.transpose(0, 2, 1) if transposed else places


def register_elements(form: Form, name: str, transposed: bool = False, order: str = BY_REGISTER) -> Index:
    """For each place in the registers, the number of the matrix element (copies, rows, columns) that it holds.

    form, name: the form and its operand.
    transposed: whether elements are numbered in the order (copies, columns, rows).
    order: order of registers in memory.
    """
    f = fragment(form, name)
    number = np.arange(f.copies * f.rows * f.columns).reshape(f.copies, f.rows, f.columns)
    if transposed:
        number = np.arange(number.size).reshape(f.copies, f.columns, f.rows).transpose(0, 2, 1)
    held = number.reshape(-1)[f.flat].reshape(f.lanes, f.registers, f.per_register)
    return (held.transpose(1, 0, 2) if order == BY_REGISTER else held).reshape(-1)
