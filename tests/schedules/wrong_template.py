"""A template that computes something else: one more than it should."""

from dataclasses import dataclass

import tvm
from tvm import tirx
from tvm.s_tir import SBlock

NAME = "wrong"
VERSION = 1


@dataclass(frozen=True)
class Knobs:
    """None."""


def match(sch):
    (block,) = sch.get_child_blocks(sch.get_sblock("root"))[-1:]
    return block


def settings(found, hardware):
    yield Knobs()


def fill(found, hardware):
    return Knobs()


def apply(sch, found, knobs):
    old = sch.get(found)
    store = old.body
    more = store.value + tvm.tirx.const(1, store.buffer.dtype)
    body = tirx.BufferStore(store.buffer, more, store.indices)
    new = SBlock(
        old.iter_vars, old.reads, old.writes, old.name_hint, body, old.init, old.alloc_buffers,
        old.match_buffers, old.annotations,
    )  # fmt: skip
    sch.state.replace(sch.get_sref(found), new, {old: new})
