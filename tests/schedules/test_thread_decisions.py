"""Templates decide on threads by times of the processor, and their records hold the decision."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tvm import te, topi

from autopipe.schedules.cost import choose_threshold
from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.templates.contraction import CONTRACTION
from autopipe.schedules.templates.dot_product import DOT_PRODUCT
from autopipe.schedules.templates.template import AnyTemplate, dump, match_function, replay_setting
from autopipe.schedules.templates.window import WINDOW
from tests.schedules.templates import test_dot_product, test_window

ZEN_4 = test_dot_product.conditions("znver4").hardware

CHEAP, DEAR = 200.0, 200_000.0
"""Nanoseconds to start a thread, far from the 2000 of the table."""


def with_start(nanoseconds, hardware=ZEN_4):
    return replace(hardware, machine=hardware.machine._replace(thread_start_ns=nanoseconds))


def floats(*shapes):
    return [te.placeholder(shape, "float32", f"x{at}") for at, shape in enumerate(shapes)]


def product(rows):
    x, w = floats((rows, 128), (128, 256))
    return [x, w, topi.matmul(x, w)], []


def maxima(rows):
    (x,) = floats((rows, 512))
    return [x, topi.max(x, axis=0)], []


def dot_product(rows):
    inputs, sums, weights = test_dot_product.matmul(rows=rows, depth=256, columns=128)
    return [*inputs, sums], weights


CASES: dict[str, tuple[AnyTemplate, Callable[[], tuple[list[Any], list[int]]]]] = {
    "window, few steps": (WINDOW, lambda: test_window.depthwise(14, 200)),
    "window, many steps": (WINDOW, lambda: test_window.depthwise(28, 200)),
    "window by tiles that overlap": (WINDOW, lambda: test_window.depthwise(27, 136)),
    "product, few": (CONTRACTION, lambda: product(8)),
    "product, many": (CONTRACTION, lambda: product(128)),
    "reduction, few": (CONTRACTION, lambda: maxima(64)),
    "reduction, many": (CONTRACTION, lambda: maxima(4096)),
    "dot product, few": (DOT_PRODUCT, lambda: dot_product(16)),
    "dot product, many": (DOT_PRODUCT, lambda: dot_product(128)),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("start", "threads"), [(CHEAP, True), (DEAR, False)])
def test_threads_follow_the_time_to_start_them_and_records_hold_it(name, start, threads):
    template, build = CASES[name]
    module, hardware = test_window.module_of(build()), with_start(start)
    sch, match = match_function(module, template)
    knobs = template.fill(match, hardware)
    template.apply(sch, match, knobs)
    assert ("T.parallel" in sch.mod.script()) == threads
    record = json.loads(dump(template, knobs))
    again = replay_setting(module, template, record, hardware)
    assert again.mod.script() == sch.mod.script()


@pytest.mark.parametrize("name", CASES)
def test_one_core_leaves_the_knob_out(name):
    template, build = CASES[name]
    _, match = match_function(test_window.module_of(build()), template)
    for start in (CHEAP, DEAR):
        knobs = template.fill(match, replace(with_start(start), cores=1))
        assert knobs.shared_from is None


@pytest.mark.parametrize(
    ("work", "nanoseconds", "threshold"),
    [
        (100, 5400.0, None),  # less than the default, and too short
        (100, 5600.0, 64),
        (1000, 5600.0, None),  # more than the default, and long enough
        (1000, 5400.0, 1024),
        (1024, 5400.0, 2048),
    ],
)
def test_a_threshold_is_stated_where_the_default_decides_otherwise(work, nanoseconds, threshold):
    assert choose_threshold(work, 500, nanoseconds, ZEN_4) == threshold
    alone = HardwareParams(512, 32, 1, machine=ZEN_4.machine)
    assert choose_threshold(work, 500, nanoseconds, alone) is None
