"""Loops that somebody wrote by hand are done side by side where that is known to be right."""

import json

import pytest
import tvm
from tvm import te, topi

from autopipe.measure.check import PlainLoops
from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.primitives import make_schedule
from autopipe.schedules.templates import by_hand
from autopipe.schedules.templates.by_hand import BY_HAND, StepsBeside
from autopipe.schedules.templates.template import dump, replay_setting
from tests.schedules.tasks import TARGET
from tests.schedules.tensors import module_of

HARDWARE = HardwareParams(vector_bits=256, registers=16, cores=2)


def matched(module):
    found = BY_HAND.match(make_schedule(module))
    assert found is not None
    return found


def summed(shape, axis):
    x = te.placeholder(shape, "float32")
    return module_of([x, topi.cumsum(x, axis)])


def scattered():
    x, at, new = (te.placeholder((7, 19), kind) for kind in ("float32", "int64", "float32"))
    return module_of([x, at, new, topi.scatter_elements(x, at, new, axis=1)])


def added(body):
    """Return a function of one block without axes."""
    return tvm.script.from_source(f"""
@I.ir_module
class Module:
    @T.prim_func(s_tir=True)
    def main(x: T.Buffer((9, 37), "float32"), y: T.Buffer((9, 37), "float32")):
        with T.sblock("by_hand"):
            T.reads()
            T.writes()
{body}
""")


COLUMNS = """
            for j in range(37):
                y[0, j] = x[0, j]
                for i in range(8):
                    y[i + 1, j] = y[i, j] * 0.5 + x[i + 1, j]
"""
"""A serial loop whose steps have a column each, as their indices show."""

ACROSS = """
            for j in range(36):
                for i in range(8):
                    y[i + 1, j] = y[i, j + 1] * 0.5 + x[i + 1, j]
"""
"""A step reads what the next one writes."""

CASES = {
    "rows": lambda: summed((13, 21), 1),
    "columns": lambda: summed((9, 45), 0),
    "one": lambda: summed((1, 37), 1),
    "between": lambda: summed((3, 5, 11), 1),
    "scattered": scattered,
    "serial": lambda: added(COLUMNS),
    "across": lambda: added(ACROSS),
}


@pytest.mark.parametrize("case", CASES)
def test_every_setting_computes_the_same_and_can_be_made_again(case, monkeypatch):
    monkeypatch.setattr(by_hand, "CYCLES", 100)
    module = CASES[case]()
    found = matched(module)
    loops, every = PlainLoops(module, TARGET), list(BY_HAND.settings(found, HARDWARE))
    assert BY_HAND.fill(found, HARDWARE) in every
    for knobs in every:
        document = json.loads(dump(BY_HAND, knobs))
        loops.check(replay_setting(module, BY_HAND, document, HARDWARE).mod)


def test_columns_are_summed_in_vectors_and_rows_in_chains():
    columns, rows = (matched(summed((64, 64), axis)) for axis in (0, 1))
    assert BY_HAND.fill(columns, HARDWARE) == StepsBeside(32, 8, threads=True)
    assert BY_HAND.fill(rows, HARDWARE) == StepsBeside(4, 1, threads=True)


def test_steps_that_hang_on_each_other_stay_in_order():
    for body, independent in ((COLUMNS, True), (ACROSS, False)):
        [nest] = matched(added(body)).nests
        assert nest is not None
        assert (nest.carried, nest.independent) == (True, independent)


def test_few_steps_start_no_threads():
    module = summed((13, 21), 1)
    sch, found = make_schedule(module), matched(module)
    BY_HAND.apply(sch, found, BY_HAND.fill(found, HARDWARE))
    assert "T.parallel" not in sch.mod.script()


def test_what_calls_other_functions_is_left_alone():
    x = te.placeholder((4, 9), "float32")
    assert BY_HAND.match(make_schedule(module_of([x, topi.sort(x)]))) is None
    assert BY_HAND.match(make_schedule(module_of([x, topi.exp(x)]))) is None
