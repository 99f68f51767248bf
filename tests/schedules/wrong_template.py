"""A template that computes something else: one more than it should."""

from dataclasses import dataclass

import tvm
from tvm import tirx
from tvm.s_tir import SBlock

from autopipe.schedules.templates.template import Template


@dataclass(frozen=True)
class NoKnobs:
    """None."""


class WrongTemplate(Template[str, NoKnobs]):
    name = "wrong"
    version = 1

    def match(self, sch):
        (block,) = sch.get_child_blocks(sch.get_sblock("root"))[-1:]
        return sch.get(block).name_hint

    def settings(self, match, hardware):
        yield NoKnobs()

    def fill(self, match, hardware):
        return NoKnobs()

    def apply(self, sch, match, knobs):
        block = sch.get_sblock(match)
        old = sch.get(block)
        store = old.body
        more = store.value + tvm.tirx.const(1, store.buffer.dtype)
        body = tirx.BufferStore(store.buffer, more, store.indices)
        new = SBlock(
            old.iter_vars, old.reads, old.writes, old.name_hint, body, old.init, old.alloc_buffers,
            old.match_buffers, old.annotations,
        )  # fmt: skip
        sch.state.replace(sch.get_sref(block), new, {old: new})


WRONG = WrongTemplate()
