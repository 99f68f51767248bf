"""Which traces are data, and which are refused."""

import json
from pathlib import Path

import pytest
import tvm
from tvm import te
from tvm.s_tir.schedule import InstructionKind
from tvm_ffi import structural_walk

from autopipe import libraries
from autopipe.errors import StageError
from autopipe.schedules.replay import apply_trace
from autopipe.traces import index_map
from autopipe.traces.kinds import ANNOTATIONS, KINDS
from autopipe.traces.reading import LARGEST, Forbidden, check_schedule, read_trace
from tests.support.table import each_row
from tests.traces.hostile import (
    BEGINNING,
    CALL,
    EXAMPLES,
    IDENTITY,
    KEYS,
    MODULE,
    REFUSED,
    TEXTS,
    corpus,
    trace,
)

PIPELINES = Path(__file__).parents[2] / "pipelines"
SETTING = {"template": "contraction", "version": 2, "knobs": {"rows": 8, "outer": "columns"}}


@pytest.fixture(scope="module")
def module():
    x, y = te.placeholder((8, 4), name="x"), te.placeholder((4, 8), name="y")
    k = te.reduce_axis((0, 4), "k")
    z = te.compute((8, 8), lambda i, j: te.sum(x[i, k] * y[k, j], axis=k), name="C")
    return tvm.IRModule({"main": te.create_prim_func([x, y, z])})


def refused(text):
    with pytest.raises(Forbidden) as caught:
        check_schedule(text)
    assert len(str(caught.value)) < 400
    assert str(caught.value).isprintable()
    return str(caught.value)


def test_the_lists_of_kinds_are_those_of_tvm():
    assert EXAMPLES.keys() == KINDS.keys()
    for kind in (*EXAMPLES, *REFUSED):
        InstructionKind.get(kind)
    assert set(ANNOTATIONS) <= set(KEYS)


@each_row("kind", EXAMPLES)
def test_each_kind_is_read_and_handed_on_as_it_was(kind):
    text = trace(kind, *EXAMPLES[kind])
    assert read_trace(text).json() == json.loads(text)


NAMES = {"a loop that is not there", "a number that is not there"}
"""Which is what an output has to be called."""


def expected(kind, place, what):
    """Tell whether it is no harm: what is only looked up, or known keys with a small number."""
    if place.startswith("outputs."):
        return what in NAMES
    if kind == "GetSBlock":
        return place == "attributes.0" and what in {*KEYS, *NAMES}
    if kind == "Annotate":
        return place == "attributes.0" and what in ANNOTATIONS and ANNOTATIONS[what](16)
    if kind == "Unannotate":
        return place == "attributes.0" and what in {*ANNOTATIONS, "schedule_rule"}
    return (kind, place, what) == ("TransformLayout", "attributes.2", "null")


@pytest.mark.fault("H2")
def test_every_hostile_trace_is_refused_or_names_what_is_harmless(module):
    """Each place of each kind, with code, paths, objects, huge and missing numbers in it."""
    refusals: list[str] = []
    passed: list[str] = []
    for kind, place, what, text in corpus():
        try:
            read_trace(text)
        except Forbidden as error:
            refusals.append(str(error))
        else:
            passed.append(text)
            assert expected(kind, place, what), (kind, place, what)
    assert len(refusals) > 10_000
    assert all(why.isprintable() and len(why) < 300 for why in refusals)
    assert 100 < len(passed) < 150
    for text in passed:
        harmless(module, text)


def harmless(module, text):
    """See that a trace that passes does not apply, or leaves nothing but known annotations."""
    try:
        made = apply_trace(module, text).mod["main"]
    except StageError:
        return
    found: set[str] = set()
    for kind in (tvm.tirx.For, tvm.s_tir.SBlock):
        structural_walk(made.body, (kind, lambda node: found.update(map(str, node.annotations))))
    assert found <= ANNOTATIONS.keys()


@pytest.mark.fault("H1")
@pytest.mark.parametrize("key", ["pragma_import_llvm", "pragma_import_c", "pragma_anything"])
def test_code_in_an_annotation_is_named(key, module):
    text = trace("Annotate", ["l1", f'"{TEXTS["LLVM IR"]}"'], [key], [])
    assert refused(text) == f'instruction 4, Annotate: key may not be "{key}"'
    with pytest.raises(StageError, match="instruction 4, Annotate"):
        apply_trace(module, text)


@each_row(
    "text, why",
    [("", "no JSON"),
     ("null", "not a list"),
     ("[[],[],[]]", "not a list"),
     ("[[], 1]", "not a list"),
     ('[[["GetLoops"]], []]', "instruction 1, GetLoops: it is not kind"),
     ("[[1], []]", "instruction 1: it is not kind"),
     ("[[[1, [], [], []]], []]", "instruction 1, 1: it is not kind"),
     ('[[["Merge", [], [], []]], []]', "instruction 1, Merge: none of the kinds"),
     ('[[["Parallel", ["l0"], [], []]], []]', "l0 is not there yet"),
     ('[[["EnterPostproc", [], [], []]], [[0, 1]]]', "it decides nothing"),
     ('[[["EnterPostproc", [], [], []]], [[-1, 1]]]', "of no instruction"),
     ('[[["EnterPostproc", [], [], []]], [[1, 1]]]', "of no instruction"),
     ('[[["EnterPostproc", [], [], []]], [[true, 1]]]', "of no instruction"),
     ('[[["SampleCategorical", [], [[1], [1.0]], ["v0"]]], []]', "decision may not be null"),
     ('[[["SampleCategorical", [], [[1], [1.0]], ["v0"]]], [[0, 1]]]', "none of its choices"),
     ('[[["SampleCategorical", [], [[1], [NaN]], ["v0"]]], [[0, 0]]]', "which is no number"),
     ('[[["SampleCategorical", [], [[1], [1e999]], ["v0"]]], [[0, 0]]]', "that is too large"),
     ('{"template": "t", "template": "u", "version": 1, "knobs": {}}', "there twice"),
     ('{"template": "t", "version": 1}', "neither a trace nor knobs"),
     (json.dumps({**SETTING, "knobs": {"rows": TEXTS["LLVM IR"]}}), "no numbers and names"),
     (json.dumps({**SETTING, "knobs": {"rows": "/etc/passwd"}}), "no numbers and names"),
     (json.dumps({**SETTING, "knobs": {"rows": "call it"}}), "no numbers and names"),
     (json.dumps({**SETTING, "knobs": {"rows": "a 1 /bin/sh"}}), "no numbers and names"),
     (json.dumps({**SETTING, "knobs": {"rows": 1 << 70}}), "no numbers and names"),
     (json.dumps({**SETTING, "template": "x" * 1000}), "no numbers and names"),
     ("[" * 100_000, "nested too deep"),
     (" " * (LARGEST + 1), "1,048,577 characters"),
     (json.dumps([[["EnterPostproc", [], [], []]] * 5000, []]), "5000 instructions")],
)  # fmt: skip
def test_what_is_no_schedule_is_refused(text, why):
    assert why in refused(text)


def test_knobs_of_templates_pass():
    part = {"template": "window", "version": 3, "knobs": {"rows": 1, "packed": True, "x": None}}
    check_schedule(json.dumps(SETTING))
    check_schedule(
        json.dumps({"template": "sequence", "version": 1, "knobs": {"parts": [part, part]}})
    )


@pytest.mark.parametrize("library", libraries.LIBRARIES)
@pytest.mark.parametrize("version", ["0.3.34.481.3", "1!2.0rc1+local.2", "of TVM"])
def test_knobs_of_calls_of_libraries_pass(library, version):
    knobs = {"library": f"{library.name} {version}", "width": 32}
    check_schedule(json.dumps({"template": "library_call", "version": 1, "knobs": knobs}))


def test_an_output_has_a_name_of_its_own():
    again = [*BEGINNING, ["GetLoops", ["b0"], [], ["l1"]]]
    assert 'an output may not be "l1"' in refused(json.dumps([again, [[2, [4, 2]]]]))


@pytest.mark.fault("H3")
@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"root_index": 4}, "no index map"),
        ({"root_index": True}, "no index map"),
        ({"root_index": -1}, "no index map"),
        ({"more": 1}, "no index map"),
        ({"metadata": {"tvm_version": "0.27", "b64ndarrays": ["AAAA"]}}, "other metadata"),
        ({"nodes": []}, "no index map"),
        ({"nodes": [{"type": "None"}] * 1000}, "more than 512"),
    ],
)
def test_an_index_map_says_no_more_than_that(change, why):
    graph = {**json.loads(IDENTITY), **change}
    with pytest.raises(ValueError, match=r"index map|of no nodes") as caught:
        index_map.read_index_map(json.dumps(graph))
    assert why in str(caught.value)


def test_a_graph_that_is_small_and_stands_for_a_large_expression_is_refused():
    graph = json.loads(IDENTITY)
    nodes, root = graph["nodes"][:4], graph["nodes"][-1]
    for _ in range(60):
        last = len(nodes) - 1
        nodes.append({"type": "prim.Add", "data": {"span": 0, "ty": 1, "a": last, "b": last}})
    nodes += [{"type": "ffi.Array", "data": [3]}, {"type": "ffi.Array", "data": [len(nodes) - 1]}]
    root["data"] |= {"initial_indices": len(nodes) - 2, "final_indices": len(nodes) - 1}
    nodes.append(root)
    text = json.dumps({"root_index": len(nodes) - 1, "nodes": nodes})
    with pytest.raises(ValueError, match="larger than any layout"):
        index_map.read_index_map(text)


def doubled(graph):
    """Return `(i) -> (i)` with something to compute: `{"a": i, "b": i}` is put into the node."""
    nodes, root = graph["nodes"][:4], graph["nodes"][-1]
    nodes += [{"type": "ffi.Array", "data": [3]}, {"type": "None"}, {"type": "ffi.Array"}, root]
    root["data"] = {"initial_indices": 4, "final_indices": 6, "inverse_index_map": 0}
    return {**graph, "root_index": 7, "nodes": nodes}


@pytest.mark.fault("H7")
@pytest.mark.parametrize(
    "node",
    [
        {"type": "prim.Sub", "data": {"span": 0, "ty": 1, "a": 3, "b": 3}},
        {"type": "int", "data": -1},
    ],
)
def test_an_index_map_counts_upwards(node):
    """TVM takes (i) -> (-i) for bijective, and the kernel writes before its buffers."""
    graph = doubled(json.loads(IDENTITY))
    graph["nodes"][5], graph["nodes"][6]["data"] = node, [3]
    with pytest.raises(ValueError, match=f"an index map with '{node['type']}' in it"):
        index_map.read_index_map(json.dumps(graph))


def misled(kind):
    """Return a trace that leaves its tensors: by a wrong way back, or by another output."""
    block = ["GetSBlock", [], ["C", "main"], ["b0"]]
    if kind == "TransformLayout":
        text = tvm.ir.save_json(tvm.tirx.IndexMap.from_func(lambda i, j: (i * 1000, j)))
        return json.dumps([[block, [kind, ["b0", text], [0, 1, None, 1], []]], []])
    there = tvm.tirx.IndexMap.from_func(lambda i, j, k: (i, j, k))
    back = tvm.tirx.IndexMap.from_func(lambda i, j, k: (i * 100_000 + j, j, k))
    text = tvm.ir.save_json(tvm.tirx.IndexMap(there.initial_indices, there.final_indices, back))
    return json.dumps([[block, [kind, ["b0"], [text], []]], []])


@pytest.mark.fault("H7")
def test_a_split_keeps_to_the_length_of_its_loop():
    inputs, _, outputs = EXAMPLES["Split"]
    why = refused(trace("Split", inputs, [True, True], outputs))
    assert why.endswith("Split: attribute 2 may not be true")


@pytest.mark.fault("H7")
@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (
            "TransformBlockLayout",
            "instruction 2, TransformBlockLayout: an index map with an inverse",
        ),
        ("TransformLayout", "the trace changes the parameters of the workload"),
    ],
)
def test_a_layout_stays_within_its_tensors(kind, why, module):
    with pytest.raises(Forbidden, match=why):
        apply_trace(module, misled(kind))


@pytest.mark.parametrize("text", [MODULE, CALL, "{}", '{"nodes": [1]}', '{"nodes": [{"type": 1}]}'])
def test_other_objects_are_no_index_maps(text):
    with pytest.raises(ValueError, match="index map"):
        index_map.read_index_map(text)


@pytest.mark.parametrize("path", sorted(PIPELINES.glob("*.records.jsonl")), ids=lambda p: p.stem)
def test_what_is_checked_in_passes(path):
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    schedules = [line["record"]["schedule"] for line in lines if line.get("record")]
    assert schedules
    for schedule in schedules:
        check_schedule(schedule)
        if schedule.startswith("["):
            assert plain(read_trace(schedule).json()) == plain(json.loads(schedule))


def plain(value):
    """Return a trace with its index maps as values: how these are spaced is no difference."""
    if isinstance(value, list):
        return [plain(each) for each in value]
    return json.loads(value) if isinstance(value, str) and value.startswith("{") else value
