"""Attention: plain loops and template compute what its definition says, in any order of axes."""

import json
import re

import numpy as np
import pytest
import tvm
from tvm import te, tirx

from autopipe.compiler.attention import AttentionForm, build_attention, to_usual_order
from autopipe.compiler.graph import elementary
from autopipe.compiler.target.target import make_host_target
from autopipe.measure.check import checked
from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.primitives import make_schedule
from autopipe.schedules.templates.attention import ATTENTION
from autopipe.schedules.templates.serve import serve
from autopipe.schedules.templates.template import dump, replay_setting
from autopipe.schedules.tiling.bands import Attended, QueryBand
from tests.schedules.loops import extents
from tests.support.table import each_row

TARGET = make_host_target(2)
WIDE = HardwareParams(vector_bits=256, registers=16, cores=2)
TURNED = (0, 2, 1, 3)
HEADS = AttentionForm(
    query=TURNED, key=TURNED, value=TURNED, result=TURNED, scale=0.25, masked=True
)
ODD = AttentionForm(
    query=(1, 0, 2), key=(0, 2, 1), value=(0, 1, 2), result=(2, 0, 1), scale=0.3, masked=True
)
PLAIN = AttentionForm(
    query=(0, 1), key=(0, 1), value=(0, 1), result=(0, 1), scale=1.0, masked=False
)

CASES: dict[str, tuple[AttentionForm, list[tuple[int, ...]], tuple[int, ...] | None]] = {
    "heads beside each other": (HEADS, [(2, 16, 3, 8)] * 3, (2, 1, 1, 16)),
    "a mask for each query": (HEADS, [(1, 16, 2, 8)] * 3, (1, 1, 16, 16)),
    "sizes that nothing divides": (ODD, [(37, 3, 20), (3, 20, 29), (3, 29, 23)], (3, 37, 1)),
    "no heads and no mask": (PLAIN, [(9, 12), (31, 12), (31, 10)], None),
}


def workload(form, shapes, mask, dtype="float32", attribute=None):
    """Return the function of a form as a module, its elementary functions marked."""
    given = [
        te.placeholder([tirx.IntImm("int64", n) for n in shape], dtype, f"p{at}")
        for at, shape in enumerate([*shapes, *([mask] if mask else [])])
    ]
    made = te.create_prim_func(
        [*given, build_attention(form, *given)], index_dtype_override="int64"
    )
    made = made.with_attr((attribute or form).attributes)
    return elementary.mark_inexact(tvm.IRModule({"main": made}))


def drawn(shapes, mask):
    generator = np.random.default_rng(3)
    return [
        generator.standard_normal(shape).astype("float32")
        for shape in [*shapes, *([mask] if mask else [])]
    ]


def wanted(form, query, key, value, *mask):
    """Return what the definition says, in double precision."""

    def in_usual_order(order, array):
        return array.transpose(to_usual_order(order, range(array.ndim))).astype("float64")

    query, key, value = (
        in_usual_order(order, array)
        for order, array in ((form.query, query), (form.key, key), (form.value, value))
    )
    scores = form.scale * np.einsum("...sd,...td->...st", query, key) + sum(mask)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    shares /= shares.sum(-1, keepdims=True)
    return np.einsum("...st,...te->...se", shares, value).transpose(form.result)


def computed(module, arrays, shape):
    given = [tvm.runtime.tensor(a) for a in (*arrays, np.full(shape, np.nan, "float32"))]
    tvm.compile(elementary.expand_functions(module), target=TARGET)["main"](*given)
    return given[-1].numpy()


@each_row("case", CASES)
def test_attention_is_what_its_definition_says(case):
    form, shapes, mask = CASES[case]
    module, arrays = workload(form, shapes, mask), drawn(shapes, mask)
    expected = wanted(form, *arrays)
    served = serve(module, WIDE)
    assert served is not None
    assert served.template.name == "attention"
    for written in (module, served.schedule.mod):
        np.testing.assert_allclose(computed(written, arrays, expected.shape), expected, 1e-4, 1e-5)


def test_every_setting_is_right_and_can_be_made_from_its_record():
    form, shapes, mask = CASES["sizes that nothing divides"]
    module = workload(form, shapes, mask)
    found = ATTENTION.match(make_schedule(module))
    assert found is not None
    settings = list(ATTENTION.settings(found, WIDE))
    assert len(settings) > 10
    for knobs in settings[:: len(settings) // 4]:
        sch = make_schedule(module)
        ATTENTION.apply(sch, found, knobs)
        checked(module, sch.mod, TARGET)
    again = replay_setting(module, ATTENTION, json.loads(dump(ATTENTION, knobs)), WIDE)
    tvm.ir.assert_structural_equal(again.mod, sch.mod)


def test_hidden_keys_have_no_share_and_what_is_no_number_is_not_hidden():
    form, shapes, _ = CASES["heads beside each other"]
    mask = (2, 1, 1, 16)
    served = serve(workload(form, shapes, mask), WIDE)
    assert served is not None
    query, key, value, hidden = drawn(shapes, mask)
    hidden[:], hidden[..., 5:] = 0, -np.inf
    value[:, 5:] = 3e38
    seen = computed(served.schedule.mod, [query, key, value, hidden], shapes[0])
    small = [query, key[:, :5], value[:, :5], hidden[..., :5]]
    np.testing.assert_allclose(seen, wanted(form, *small), 1e-4, 1e-5)
    query[0, 3, 1] = np.nan
    seen = computed(served.schedule.mod, [query, key, value, hidden], shapes[0])
    assert np.isnan(seen[0, 3, 1]).all()
    assert np.isnan(seen).sum() == 8


def test_the_loops_are_those_of_the_example():
    module = workload(HEADS, [(1, 128, 12, 32)] * 3, (1, 1, 1, 128))
    found = ATTENTION.match(make_schedule(module))
    assert found == Attended(HEADS, (1, 12), 128, 128, 32, 32)
    knobs = QueryBand(32, 8, 32, 16, 8, 32, 16)
    sch = make_schedule(module)
    ATTENTION.apply(sch, found, knobs)
    script = re.sub(r"T\.int64\((\d+)\)", r"\1", sch.mod.script())
    band, scores, results = [48, 4, 32, 8], [16, 1, 8, 2, 16, 32], [1, 4, 8, 2, 16, 128]
    assert extents(script)[:4] == band
    assert {*band, *scores, *results} == set(extents(script))
    assert "sblock_alloc_buffer((128, 32))" in script


@each_row(
    "made",
    [
        workload(HEADS, CASES["heads beside each other"][1], (2, 1, 1, 16), attribute=ODD),
        workload(PLAIN, [(8, 8)] * 3, None, dtype="float64"),
        workload(HEADS, CASES["heads beside each other"][1], (2, 1, 1, 16),
                 attribute=HEADS.model_copy(update={"scale": 0.5})),
    ],
)  # fmt: skip
def test_an_attribute_that_tells_something_else_is_not_believed(made):
    assert ATTENTION.match(make_schedule(made)) is None


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"query": [0]}', "x" * 100])
def test_a_text_that_is_no_form_is_none(text):
    module = workload(PLAIN, [(8, 8)] * 3, None)
    function = module["main"].with_attr("autopipe.attention", text)
    assert ATTENTION.match(make_schedule(tvm.IRModule({"main": function}))) is None
