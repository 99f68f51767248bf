import itertools
import json

import numpy as np
import pytest
import tvm
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T  # noqa: N812 - TVM's name for it

from autopipe.compiler.dynamic_sizes import kernel_sizes
from autopipe.compiler.graph import elementary
from autopipe.compiler.passes.drop_buffer_layouts import drop_buffer_layouts
from autopipe.compiler.recurrence import plain
from autopipe.compiler.recurrence.form import ATTRIBUTE, Activation, Direction, Recurrence
from autopipe.measure import build
from autopipe.measure.build import compile_module
from autopipe.measure.check import WrongAnswer, checked
from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.primitives import make_schedule
from autopipe.schedules.recurrence import functions
from autopipe.schedules.recurrence.blocking import APART, SERIAL, TOGETHER, UnitBlocking
from autopipe.schedules.templates.recurrence import RECURRENCE
from autopipe.schedules.templates.serve import serve
from autopipe.schedules.templates.template import dump, match_function, replay_setting
from tests.schedules import emulated
from tests.schedules.tasks import TARGET
from tests.support.table import each_row

HARDWARE = HardwareParams(vector_bits=128, registers=16, cores=2)
WIDE = HardwareParams(vector_bits=512, registers=32, cores=2, l1=48 << 10, l2=2 << 20)

SIGMOID, TANH = (Activation(name=name) for name in ("sigmoid", "tanh"))
USUAL = {"LSTM": (SIGMOID, TANH, TANH), "GRU": (SIGMOID, TANH), "RNN": (TANH,)}


def layer(kind="LSTM", steps=3, batch=3, hidden=10, reverse=(False,), **fields):
    directions = tuple(Direction(reverse=backward, activations=USUAL[kind]) for backward in reverse)
    return Recurrence(
        kind=kind, steps=steps, batch=batch, hidden=hidden, directions=directions, **fields
    )


def module(form, *, free=True):
    function = plain.build_loops(form).without_attr("op_pattern").with_attr("global_symbol", "main")
    if free:
        function = function.with_attr("layout_free_buffers", [1])
    return elementary.mark_inexact(tvm.IRModule({"main": function}))


def found_in(workload):
    found = RECURRENCE.match(make_schedule(workload))
    assert found is not None
    return found


BOTH = (False, True)
LAYERS = [
    (layer(batch=5, reverse=BOTH), SERIAL, 1),
    (layer(peepholes=True, clip=0.5, reverse=(True,), initial=True), APART, 2),
    (layer(coupled=True, lengths=True, reverse=BOTH, resting=True), TOGETHER, 2),
    (layer(dtype="float64", hidden=3, batch=1), SERIAL, 1),
    (layer(steps=1, resting=True), SERIAL, 1),
    (layer("GRU", reverse=BOTH, lengths=True), APART, 1),
    (layer("GRU", reset_after=True, initial=True, batch=1, hidden=9), TOGETHER, 2),
    (layer("GRU", batch=3, hidden=8, reverse=BOTH, resting=True), SERIAL, 1),
    (layer("GRU", batch=2, hidden=20, steps=4), TOGETHER, 2),
    (layer("GRU", steps=1, resting=True, reset_after=True), APART, 2),
    (layer("RNN", reverse=(True,), batch=4, lengths=True, initial=True), APART, 2),
    (layer(reverse=BOTH, lengths=True, rounded=True), APART, 1),
    (layer(batch=2, hidden=24, initial=True, rounded=True), TOGETHER, 2),
    (layer(steps=17, batch=1, hidden=128, initial=True, rounded=True), SERIAL, 1),
    (layer(steps=5, batch=1, hidden=2, reverse=(True,), initial=True, rounded=True), SERIAL, 1),
    (
        layer(
            steps=64, batch=2, hidden=24, reverse=(True,), lengths=True, initial=True, rounded=True
        ),
        SERIAL,
        1,
    ),
]


@each_row("form, threads, parts", LAYERS)
def test_schedules_are_right(form, threads, parts):
    workload = module(form)
    found = found_in(workload)
    fit = [
        knobs
        for knobs in RECURRENCE.settings(found, HARDWARE)
        if (knobs.threads, knobs.parts) == (threads, parts)
    ]
    sch = make_schedule(workload)
    RECURRENCE.apply(sch, found, fit[len(fit) // 2])
    checked(workload, sch.mod, TARGET)


@each_row(
    "form, knobs",
    [
        (layer("GRU", steps=2, hidden=3), UnitBlocking(3, 3, 2, SERIAL, 1)),
        (layer("GRU", steps=2, hidden=10, reset_after=True), UnitBlocking(10, 2, 3, SERIAL, 1)),
        (layer("GRU", steps=2, hidden=7, dtype="float64"), UnitBlocking(7, 2, 1, SERIAL, 1)),
        (layer(steps=2, batch=1, hidden=11, coupled=True), UnitBlocking(6, 1, 2, SERIAL, 1)),
    ],
)
def test_two_steps_write_outputs_at_the_indices_of_their_states(form, knobs):
    workload = module(form)
    sch = make_schedule(workload)
    RECURRENCE.apply(sch, found_in(workload), knobs)
    checked(workload, sch.mod, TARGET)


def opened(form, free_batch, likely):
    """Return a layer whose steps are open, and its batch where that is asked for."""
    sizes = {"steps": 0} | ({"batch": 0} if free_batch else {})
    workload = drop_buffer_layouts(module(form.model_copy(update=sizes)))
    known = [[1, likely, 9]] + [[1, form.batch, 6]] * free_batch
    return tvm.IRModule({"main": workload["main"].with_attr(kernel_sizes.SIZES, known)})


@each_row(
    "form, free_batch, threads, parts",
    [
        (layer(batch=1, reverse=BOTH, resting=True), False, APART, 1),
        (layer("GRU", batch=3, reverse=BOTH, lengths=True, initial=True), True, SERIAL, 1),
        (layer("GRU", batch=4, hidden=20), True, TOGETHER, 2),
        (layer(batch=5, rounded=True, reset_after=False), True, SERIAL, 1),
        (layer("RNN", batch=4, hidden=180, reverse=(True,)), True, APART, 2),
    ],
)
def test_schedules_of_dynamic_sizes_are_right(form, free_batch, threads, parts):
    workload = opened(form, free_batch, likely=3)
    sch, found = match_function(workload, RECURRENCE)
    assert found.form == form
    fit = [
        knobs
        for knobs in RECURRENCE.settings(found, HARDWARE)
        if (knobs.threads, knobs.parts) == (threads, parts)
    ]
    RECURRENCE.apply(sch, found, max(fit, key=lambda knobs: knobs.rows))
    checked(workload, sch.mod, TARGET)


def test_instructions_add_products_of_bytes(monkeypatch):
    target = tvm.target.Target({"kind": "llvm", "mcpu": "cascadelake", "num-cores": 2})
    hardware = HardwareParams.of(target)
    workload = module(layer(batch=2, hidden=20, reverse=BOTH, rounded=True, initial=True))
    found = found_in(workload)
    by_instruction = [s for s in RECURRENCE.settings(found, hardware) if s.instruction]
    assert {(s.instruction, s.lanes) for s in by_instruction} == {("vpdpbusd", 16)}
    sch = make_schedule(workload)
    RECURRENCE.apply(sch, found, RECURRENCE.fill(found, hardware))
    assert "vpdpbusd" in compile_module(sch.mod, target).inspect_source("asm")
    monkeypatch.setattr(build, "compile_kernel", emulated.kernel)
    checked(workload, sch.mod, target)


def test_weights_are_packed_by_the_build_only_if_they_are_weights():
    for free in BOTH:
        served = serve(module(layer(), free=free), HARDWARE)
        assert served is not None
        assert served.template is RECURRENCE
        assert ("layout_rewrite_preproc" in served.schedule.mod.script()) == free


def test_one_block_packs_the_weights_of_both_phases_of_a_step():
    served = serve(module(layer("GRU")), HARDWARE)
    assert served is not None
    # TVM takes one block for each weight out of a function, and fails where there are two
    assert served.schedule.mod.script().count("layout_rewrite_preproc") == 1


def test_functions_of_gates_fill_vectors_and_pass_on_what_is_no_number():
    workload = module(layer("GRU", steps=2, batch=2, hidden=16))
    found = found_in(workload)
    assert found.fast
    sch = make_schedule(workload)
    RECURRENCE.apply(sch, found, RECURRENCE.fill(found, HARDWARE))
    text = sch.mod.script()
    assert not [word for word in ("T.sigmoid", "T.tanh", "isnan") if word in text]
    library = compile_module(sch.mod, TARGET)
    form = found.form
    arrays = [np.zeros(shape, dtype) for shape, dtype in form.inputs.values()]
    arrays[0][0, 1, 3] = np.nan
    arrays += [np.empty(shape, form.dtype) for shape in form.outputs.values()]
    tensors = [tvm.runtime.tensor(array) for array in arrays]
    library["main"](*tensors)
    y = tensors[len(form.inputs)].numpy()
    assert np.isnan(y[0, 0, 1, 3])
    assert np.isnan(y[1, 0, 1]).all()
    assert not y[:, :, 0].any()


def test_a_wrong_schedule_of_an_int8_layer_is_found():
    """Its plain loops waver, but not on inputs that are mostly zeros."""
    forward, backward = (
        module(layer(steps=5, batch=1, hidden=8, reverse=(way,), initial=True, rounded=True))
        for way in BOTH
    )
    served = serve(backward, HARDWARE)
    assert served is not None
    with pytest.raises(WrongAnswer):
        checked(forward, served.schedule.mod, TARGET)


def functions_of(a, b):
    """Compute sigmoid(a), tanh(a) and sigmoid(a) * tanh(b)."""
    given = [tirx.decl_buffer([a.size], "float32") for _ in range(5)]
    with IRBuilder() as builder, T.vectorized(a.size) as at:
        one, other = given[0][at], given[1][at]
        values = tirx.sigmoid(one), tirx.tanh(one), tirx.sigmoid(one) * tirx.tanh(other)
        for buffer, value in zip(given[2:], values, strict=True):
            T.buffer_store(buffer, functions.inline_activations(value), [at])
    tensors = [tvm.runtime.tensor(array) for array in (a, b, *np.empty((3, a.size), "float32"))]
    main = tirx.PrimFunc(given, builder.get()).with_attr("global_symbol", "main")
    compile_module(tvm.IRModule({"main": main}), TARGET)["main"](*tensors)
    return [tensor.numpy() for tensor in tensors[2:]]


def test_functions_of_gates_are_right_up_to_the_ends():
    x = np.array([0, -0.3, 2, -7, 9.5, -30, 88, -200, np.inf, -np.inf, np.nan, 1e-20], "float32")
    a, b = (np.ascontiguousarray(grid.reshape(-1)) for grid in np.meshgrid(x, x))
    with np.errstate(over="ignore"):
        sigmoid, tanh = 1 / (1 + np.exp(-a.astype("float64"))), np.tanh(b.astype("float64"))
    expected = [sigmoid, np.tanh(a.astype("float64")), sigmoid * tanh]
    for result, right in zip(functions_of(a, b), expected, strict=True):
        np.testing.assert_allclose(result, right, rtol=6e-7, atol=5e-39)


def test_saturated_gates_are_exact():
    """The state of an int8 layer spans -1 to 1, and 0 is halfway between two steps there."""
    beyond = np.array([9.02, 12, 90, 1e4, 3e38, np.inf], "float32")
    _, tanh, hidden = functions_of(np.r_[beyond, -beyond], np.r_[-beyond, beyond])
    assert tanh.tolist() == [1.0] * 6 + [-1.0] * 6
    closed = functions_of(-beyond[2:], beyond[2:])
    assert not closed[0].any()
    assert not closed[2].any()
    assert hidden[2:6].tolist() == [-1.0] * 4
    near = np.linspace(7, 9.1, 4096, dtype="float32")
    for result in functions_of(np.full_like(near, 100), near)[1:]:
        assert result.max() <= 1


def test_threads_that_work_together_keep_their_tiles_and_turn_around():
    form = layer(steps=2, batch=1, hidden=40, resting=True)
    workload = module(form)
    found = found_in(workload)
    five_tiles = UnitBlocking(width=8, rows=1, gates=4, threads=TOGETHER, parts=2)
    sch = make_schedule(workload)
    RECURRENCE.apply(sch, found, five_tiles)
    checked(workload, sch.mod, TARGET)
    assert "T.parallel(T.int64(2))" in sch.mod.script()


def test_every_setting_fits_the_registers_and_can_be_made_again():
    workload = module(layer("GRU", batch=2, hidden=16))
    found = found_in(workload)
    every = list(RECURRENCE.settings(found, HARDWARE))
    assert len(set(every)) == len(every) > 20
    for knobs in every:
        assert knobs.rows * knobs.gates * -(-knobs.width // 4) < HARDWARE.registers
    sch = make_schedule(workload)
    RECURRENCE.apply(sch, found, every[-1])
    text = dump(RECURRENCE, every[-1])
    again = replay_setting(workload, RECURRENCE, json.loads(text), HARDWARE)
    tvm.ir.assert_structural_equal(sch.mod, again.mod, map_free_vars=True)


@each_row(
    "form, threads, parts",
    [
        (layer(steps=64, batch=1, hidden=64), SERIAL, 1),
        (layer(steps=64, batch=1, hidden=512), TOGETHER, 2),
        (layer(steps=64, batch=1, hidden=64, reverse=BOTH), APART, 1),
        (layer(steps=64, batch=1, hidden=256, reverse=BOTH), APART, 1),
        (layer(steps=64, batch=8, hidden=128), APART, 2),
        (layer(steps=1, batch=1, hidden=64, reverse=BOTH), SERIAL, 1),
        (layer(steps=1, batch=1, hidden=512, initial=True, rounded=True), TOGETHER, 2),
    ],
)
def test_threads_are_used_where_they_pay(form, threads, parts):
    knobs = RECURRENCE.fill(found_in(module(form)), WIDE)
    assert (knobs.threads, knobs.parts) == (threads, parts)


def changed(function, text):
    return tvm.IRModule({"main": function.with_attr(ATTRIBUTE, text)})


@each_row(
    "text",
    [
        layer(hidden=11).model_dump_json(),
        layer(coupled=True).model_dump_json(),
        layer().model_dump_json().replace("tanh", "sigmoid"),
        layer().model_dump_json().replace('"steps":3', '"steps":-3'),
        layer().model_dump_json().replace("tanh", "rm -rf"),
        "{}",
        "",
        "[" * 10_000,
    ],
)
def test_a_function_that_is_not_what_it_says_is_not_served(text):
    function = module(layer())["main"]
    assert RECURRENCE.match(make_schedule(changed(function, text))) is None
    assert RECURRENCE.match(make_schedule(changed(function, layer().model_dump_json()))) is not None


def test_no_other_template_takes_a_recurrent_layer():
    from autopipe.schedules.templates import TEMPLATES

    for template, kind in itertools.product(TEMPLATES, USUAL):
        if template is not RECURRENCE:
            assert template.match(make_schedule(module(layer(kind)))) is None, template.name
