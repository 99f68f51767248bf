"""Kernel calls name the nodes of the ONNX file that they compute."""

import re
from typing import Any

import numpy as np
import tvm
from onnx import helper, numpy_helper

from autopipe.artifacts.model_nodes import PACKED
from autopipe.compiler import lowering
from autopipe.compiler.frontends.onnx.load import load_model
from autopipe.compiler.graph.calls import graph_functions, list_bindings
from autopipe.compiler.labels.kernel_nodes import (
    list_kernel_functions,
    list_kernel_work,
    relabel_packed,
)
from autopipe.compiler.labels.node_labels import Label, read_label, set_labels, strip_label
from autopipe.compiler.library.build import build_library
from autopipe.compiler.module_io import list_prim_funcs
from autopipe.compiler.tasks import make_workload
from autopipe.config.dimension import Dimension
from autopipe.config.model import Input
from tests.compiler.frontends.control import control_models
from tests.compiler.frontends.models import ints, model, node, save, tensor, value
from tests.compiler.frontends.recurrent import Layers
from tests.support.table import each_row

TARGET = tvm.target.Target({"kind": "llvm", "num-cores": 1})
CHANNELS_LAST = {"conv2d": ["NHWC", "HWIO"]}
MOVEMENT = re.compile(r"(fused)?(_?(transpose|reshape|expand_dims|squeeze)\d*)+")
"""Names of kernels that only move data."""


def lowered(made, folder, layout=None, **given):
    imported = load_model(save(made, folder), given.get("inputs", {}), None, None,
                    given.get("dimensions", {}))  # fmt: skip
    count = int(imported.module["main"].attrs["num_input"])
    optimized = lowering.optimize(imported.module, count, layout or {}, TARGET, print)
    return lowering.lower(optimized.module, TARGET), [one.name for one in imported.nodes]


def mapped(made, folder, layout=None, **given):
    """Return the kernel calls of `main` with the names of their nodes; `+` if added."""
    module, names = lowered(made, folder, layout, **given)
    main = list_kernel_functions(module)[0]
    assert main.name == "main"
    return [("+" if call.added else "") + " ".join(names[at] for at in call.nodes)
            for call in main.calls]  # fmt: skip


def normalized(name, channels):
    """A convolution, its batch norm and its activation, with their weights."""
    nodes = [
        helper.make_node("Conv", ["x", f"{name}.w"], [f"{name}.c"], f"{name}.conv",
                         kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", [f"{name}.c", *(f"{name}.{p}" for p in "gbmv")],
                         [f"{name}.n"], f"{name}.norm"),
        helper.make_node("Relu", [f"{name}.n"], [f"{name}.y"], f"{name}.relu"),
    ]  # fmt: skip
    stored = [tensor(f"{name}.w", channels, channels, 3, 3)]
    return nodes, stored + [tensor(f"{name}.{p}", channels, fill=1.0) for p in "gbmv"]


def test_a_folded_batch_norm_is_named_with_its_convolution(tmp_path):
    nodes, stored = normalized("a", 4)
    made = model(nodes, [value("x", [1, 4, 8, 8])], [value("a.y", None)], stored)
    assert mapped(made, tmp_path) == ["a.conv a.norm a.relu"]


def test_equal_layers_and_a_residual_are_told_apart(tmp_path):
    nodes: list[Any] = []
    stored: list[Any] = []
    before = "x"
    for name in ("a", "b"):
        own, weights = normalized(name, 4)
        own[0].input[0] = before
        own.append(helper.make_node("Add", [f"{name}.y", before], [f"{name}.s"], f"{name}.sum"))
        nodes, stored, before = [*nodes, *own], [*stored, *weights], f"{name}.s"
    made = model(nodes, [value("x", [1, 4, 8, 8])], [value(before, None)], stored)
    kernels = [call.kernel for call in list_kernel_functions(lowered(made, tmp_path)[0])[0].calls]
    assert kernels[0] == kernels[1]
    assert mapped(made, tmp_path) == ["a.conv a.norm a.relu a.sum", "b.conv b.norm b.relu b.sum"]


def test_what_a_layout_adds_says_so(tmp_path):
    nodes, stored = normalized("a", 4)
    made = model(nodes, [value("x", [1, 4, 8, 8])], [value("a.y", None)], stored)
    calls = mapped(made, tmp_path, CHANNELS_LAST)
    assert "a.conv a.norm a.relu" in calls
    others = [call for call in calls if call != "a.conv a.norm a.relu"]
    assert others
    assert all(call.startswith("+a.") for call in others)


@each_row(
    "operator, inputs, attributes",
    [
        ("ConvTranspose", ["u"], {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ("ConvTranspose", ["t"], {"strides": [2, 2]}),
        ("GlobalAveragePool", [], {}), ("GlobalMaxPool", [], {}), ("GlobalLpPool", [], {}),
        ("AveragePool", [], {"kernel_shape": [8, 8]}), ("MaxPool", [], {"kernel_shape": [2, 2]}),
        ("LpPool", [], {"kernel_shape": [2, 2]}), ("ReduceMean", [], {"axes": [2, 3]}),
        ("InstanceNormalization", ["s", "s"], {}), ("LRN", [], {"size": 3}),
        ("Softmax", [], {"axis": 1}), ("Resize", ["", "f"], {"mode": "nearest"}),
        ("Pad", ["p"], {"mode": "reflect"}), ("DepthToSpace", [], {"blocksize": 2}),
    ],
)  # fmt: skip
def test_an_operator_behind_a_convolution_keeps_its_node(operator, inputs, attributes, tmp_path):
    """A kernel that counts as added moves data, and one of the node's own computes it."""
    nodes = [
        node("Conv", ["x", "w"], "a", pads=[1, 1, 1, 1]),
        helper.make_node(operator, ["a", *inputs], ["b"], "it", **attributes),
        node("Relu", ["b"], "y"),
    ]
    stored = [
        tensor("w", 4, 4, 3, 3), tensor("u", 4, 4, 4, 4), tensor("t", 4, 16, 2, 2), tensor("s", 4),
        ints("p", 0, 0, 1, 1, 0, 0, 1, 1),
        numpy_helper.from_array(np.array([1, 1, 2, 2], "float32"), "f"),
    ]  # fmt: skip
    used = [one for one in stored if one.name in {"w", *inputs}]
    made = model(nodes, [value("x", [1, 4, 8, 8])], [value("y", None)], used)
    module, names = lowered(made, tmp_path, CHANNELS_LAST)
    calls = list_kernel_functions(module)[0].calls
    added = [call.kernel for call in calls if call.added]
    assert [kernel for kernel in added if not MOVEMENT.fullmatch(kernel)] == []
    assert any(names.index("it") in call.nodes for call in calls if not call.added)


def test_calls_say_whose_results_they_read(tmp_path):
    made = model(
        [
            node("MatMul", ["x", "w"], "a"), node("Softmax", ["a"], "b", axis=-1),
            node("Softmax", ["a"], "c", axis=0), node("MatMul", ["b", "c"], "y"),
        ],
        [value("x", [64, 64])], [value("y", None)], [tensor("w", 64, 64)],
    )  # fmt: skip
    module, names = lowered(made, tmp_path)
    calls = list_kernel_functions(module)[0].calls
    at = {names[call.nodes[0]]: place for place, call in enumerate(calls)}
    assert {names[call.nodes[0]]: call.reads for call in calls} == {
        "MatMul of a": (), "Softmax of b": (at["MatMul of a"],),
        "Softmax of c": (at["MatMul of a"],),
        "MatMul of y": tuple(sorted((at["Softmax of b"], at["Softmax of c"]))),
    }  # fmt: skip


def test_attention_names_all_its_nodes(tmp_path):
    made = model(
        [
            node("MatMul", ["q", "k"], "scores"), node("Softmax", ["scores"], "shares", axis=-1),
            node("MatMul", ["shares", "v"], "y"),
        ],
        [value("q", [1, 2, 64, 64]), value("k", [1, 2, 64, 64]), value("v", [1, 2, 64, 64])],
        [value("y", None)],
    )  # fmt: skip
    assert mapped(made, tmp_path) == ["MatMul of scores Softmax of shares MatMul of y"]


def test_dynamic_shapes_keep_the_map(tmp_path):
    made = model(
        [
            node("MatMul", ["x", "w"], "p"), node("Relu", ["p"], "r"),
            node("Softmax", ["r"], "y", axis=-1),
        ],
        [value("x", ["rows", 3])], [value("y", None)], [tensor("w", 3, 4)],
    )  # fmt: skip
    inputs = {"x": Input(shape=("rows", 3))}
    calls = mapped(
        made, tmp_path, inputs=inputs, dimensions={"rows": Dimension(max=8, likely=(4,))}
    )
    assert calls == ["MatMul of p Relu of r", "Softmax of y"]


def test_a_recurrent_layer_names_its_node(tmp_path):
    layers = Layers()
    layers.add("LSTM")
    assert set(mapped(layers.model(), tmp_path)) == {"layer0"}


def test_bodies_of_loops_and_branches_name_their_nodes(tmp_path):
    for make in (control_models.watched, control_models.branches):
        module, names = lowered(make()[0], tmp_path)
        calls = [call for one in list_kernel_functions(module) for call in one.calls]
        assert calls
        assert all(call.nodes for call in calls)
        assert len(names) > max(node for call in calls for node in call.nodes)


def test_two_nodes_of_equal_code_and_different_constants(tmp_path):
    made = model(
        [
            node("Add", ["x", "one"], "a"), node("ReduceSum", ["a", "axes"], "s"),
            node("Add", ["s", "two"], "b"), node("ReduceSum", ["b", "axes"], "y"),
        ],
        [value("x", [4, 4])], [value("y", None)],
        [tensor("one", 1, fill=1.0), ints("axes", 1),
         tensor("two", 1, fill=2.0)],
    )  # fmt: skip
    assert mapped(made, tmp_path) == ["Add of a ReduceSum of s", "Add of b ReduceSum of y"]


def test_missing_and_equal_names_are_numbered(tmp_path):
    nodes = [helper.make_node("Exp", [a], [b]) for a, b in ("xa", "ab")]
    nodes += [helper.make_node("Sin", [a], [b], "same") for a, b in ("bc", "cy")]
    made = model(nodes, [value("x", [4])], [value("y", None)])
    imported = load_model(save(made, tmp_path), {}, None, None)
    assert [one.name for one in imported.nodes] == ["Exp_0", "Exp_1", "same", "same (2)"]
    assert mapped(made, tmp_path) == ["Exp_0 Exp_1 same same (2)"]


def test_names_enter_neither_kernels_nor_the_order_of_calls(tmp_path):
    """Nodes with other names leave the same PrimFuncs, parameters included."""

    def renamed(prefix):
        nodes, stored = normalized("a", 4)
        nodes += [node("GlobalAveragePool", ["a.y"], "m"), node("Softmax", ["m"], "y", axis=1)]
        for one in nodes:
            one.name = prefix + one.name
        return model(nodes, [value("x", [1, 4, 8, 8])], [value("y", None)], stored)

    first, _ = lowered(renamed(""), tmp_path, CHANNELS_LAST)
    second, _ = lowered(renamed("x@7\n"), tmp_path, CHANNELS_LAST)
    texts = [tvm.ir.save_json(tvm.IRModule(dict(list_prim_funcs(m)))) for m in (first, second)]
    assert texts[0] == texts[1]
    assert "@" not in texts[0]
    assert tvm.ir.save_json(first) == tvm.ir.save_json(second)


def test_the_map_of_a_build_leaves_out_what_tvm_makes_a_view_of(tmp_path):
    """A transpose of ones, fused with a reshape, moves nothing: no kernel is called for it."""
    nodes = [
        node("Conv", ["x", "w"], "c"), node("GlobalAveragePool", ["c"], "p"),
        node("Flatten", ["p"], "f"), node("MatMul", ["f", "m"], "y"),
    ]  # fmt: skip
    stored = [tensor("w", 8, 4, 3, 3), tensor("m", 8, 3)]
    made = model(nodes, [value("x", [1, 4, 8, 8])], [value("y", None)], stored)
    module, names = lowered(made, tmp_path, CHANNELS_LAST)
    (main,) = list_kernel_functions(module)
    (moving,) = (call.kernel for call in main.calls if "reshape" in call.kernel)
    schedule = tvm.s_tir.Schedule(make_workload(module[moving]).module)
    schedule.compute_inline(schedule.get_sblock("T_transpose"))
    (built,) = build_library(module, {moving: schedule.mod}, TARGET).functions
    assert len(built.calls) == len(main.calls) - 1
    last, before = built.calls[-1], built.calls[-2]
    assert [names[at] for at in last.nodes] == ["MatMul of y"]
    assert [names[at] for at in before.nodes] == ["GlobalAveragePool of p"]
    assert last.reads == (len(built.calls) - 2,), "through the view"


def test_the_map_of_a_build_is_that_of_its_calls(tmp_path):
    nodes, stored = normalized("a", 4)
    nodes += [node("Flatten", ["a.y"], "f"), node("MatMul", ["f", "m"], "y")]
    made = model(nodes, [value("x", [1, 4, 8, 8])], [value("y", None)],
                 [*stored, tensor("m", 256, 3)])  # fmt: skip
    module, names = lowered(made, tmp_path)
    built = build_library(module, {}, TARGET).functions
    (main,) = built
    told = [[names[at] for at in call.nodes] for call in main.calls]
    assert told[0] == ["a.conv", "a.norm", "a.relu"]
    assert told[-1][-1] == "MatMul of y"
    work = list_kernel_work(built, {call.kernel: 7.0 for call in main.calls})
    assert {one.kernel for one in work} == {call.kernel for call in main.calls}


def test_labels_survive_the_split_of_packing(tmp_path):
    nodes, stored = normalized("a", 4)
    module, _ = lowered(
        model(nodes, [value("x", [1, 4, 8, 8])], [value("a.y", None)], stored), tmp_path
    )
    bare: dict[Any, Any] = {}
    for _, function in graph_functions(module):
        bare |= {one.var: one for one in list_bindings(function)}
    text = tvm.ir.save_json(module)
    for var in bare:
        text = text.replace(var.name, strip_label(var.name))
    after = tvm.ir.load_json(text)
    assert all(not call.nodes for call in list_kernel_functions(after)[0].calls)
    assert list_kernel_functions(relabel_packed(module, after)) == list_kernel_functions(module)
    assert PACKED == "_prepacked"


def test_a_label_is_read_as_it_is_written():
    for label in (Label((3,)), Label((1, 20), added=True)):
        assert read_label("lv4" + label.suffix) == label
        assert strip_label("lv4" + label.suffix) == "lv4"
    assert read_label("lv4") is None
    assert set_labels(tvm.IRModule({}), {}).functions_items() is not None
