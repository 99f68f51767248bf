"""One random node: imported, compiled as plain loops, and compared with two references."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import tvm
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from autopipe.compiler.codegen import compile_kernels
from autopipe.compiler.frontends.onnx.load import load_model
from autopipe.compiler.passes.inline_scalars import inline_scalars
from autopipe.compiler.passes.widen_to_float32 import widen_to_float32
from autopipe.errors import ModelError
from tests.compiler.frontends.models import compiled, run, save, value
from tests.compiler.frontends.nodes.random_layers import LAYERS
from tests.compiler.frontends.nodes.random_movement import MOVEMENT
from tests.compiler.frontends.nodes.random_nodes import GENERATORS, Draw, Node

ALL: Final = {**GENERATORS, **MOVEMENT, **LAYERS}
_RELATIVE: Final = {"float16": 4e-3, "float32": 3e-5, "float64": 1e-6}
_IR: Final = 10


@dataclass(frozen=True)
class Trial:
    """What became of a node."""

    verdict: str
    """right, wrong, refused, or unknown where no reference computes it."""
    reason: str
    node: Node


def try_node(op: str, seed: int, folder: Path) -> Trial:
    """Import and run the node that a seed draws."""
    node = ALL[op](Draw(seed), op)
    made = to_model(node)
    wanted = references(made, node.inputs)
    if not wanted:
        return Trial("unknown", "", node)
    for output, expected in zip(made.graph.output, next(iter(wanted.values())), strict=True):
        kind = helper.np_dtype_to_tensor_dtype(expected.dtype)
        output.type.tensor_type.elem_type = output.type.tensor_type.elem_type or kind
    try:
        imported = load_model(save(made, folder), {}, None, None)
    except ModelError as error:
        return Trial("refused", str(error).split("model.onnx: ", 1)[-1], node)
    module = inline_scalars(imported.module)  # as a build does it, and the next
    imported = replace(
        imported, module=widen_to_float32(module, tvm.target.Target({"kind": "llvm"}))
    )
    feeds = {value.name: node.inputs[value.name] for value in imported.inputs}
    found = compiled(imported, feeds, tir_pipeline=compile_kernels.STATIC)
    reasons = {name: difference(found, expected) for name, expected in wanted.items()}
    if not all(reasons.values()):
        return Trial("right", "", node)
    return Trial("wrong", "; ".join(f"{name}: {told}" for name, told in reasons.items()), node)


def to_model(node: Node) -> Any:
    """Return a model of one node."""
    outputs = [f"y{at}" for at in range(node.outputs)]
    made = helper.make_node(node.op, node.names, outputs, domain=node.domain, **node.attributes)
    stored = [numpy_helper.from_array(np.asarray(v), name) for name, v in node.constants.items()]
    given = [
        value(name, array.shape, helper.np_dtype_to_tensor_dtype(array.dtype))
        for name, array in node.inputs.items()
    ]
    results = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph([made], "node", given, results, stored)
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", node.opset)], ir_version=_IR
    )
    inferred = onnx.shape_inference.infer_shapes(model)
    for output in inferred.graph.output:
        output.type.tensor_type.ClearField("shape")
    return inferred


def references(model: Any, feeds: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return what onnxruntime and ONNX's own evaluator compute, as far as they do."""
    found = {}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for name, evaluate in (("onnxruntime", run), ("onnx", _evaluated)):
            try:
                arrays = [np.asarray(each) for each in evaluate(model, dict(feeds))]
            except Exception:  # noqa: BLE001 - either refuses what it does not have
                continue
            if all(map(_has_type, arrays, model.graph.output)):
                found[name] = arrays
    return found


def _has_type(array: Any, output: Any) -> bool:
    """Whether a result is of the dtype that ONNX infers: its evaluator changes some."""
    kind = output.type.tensor_type.elem_type
    return kind in {0, helper.np_dtype_to_tensor_dtype(array.dtype)}


def _evaluated(model: Any, feeds: Mapping[str, Any]) -> list[Any]:
    return list(ReferenceEvaluator(model).run(None, dict(feeds)))


def difference(found: list[Any], wanted: list[Any]) -> str:
    """Return how outputs differ; nothing if they do not."""
    for ours, expected in zip(found, wanted, strict=True):
        if (ours.shape, ours.dtype) != (expected.shape, expected.dtype):
            return f"{ours.dtype} {list(ours.shape)}, not {expected.dtype} {list(expected.shape)}"
        if ours.dtype.kind != "f":
            equal = ours == expected
        else:
            relative = _RELATIVE[str(ours.dtype)]
            finite = expected[np.isfinite(expected)].astype("float64")
            most = min(float(np.abs(finite).max(initial=0.0)), 1e3)
            with np.errstate(all="ignore"):
                equal = np.isclose(
                    ours, expected, relative, relative * max(most, 1e-3), equal_nan=True
                )
        if not equal.all():
            at = int(np.argmin(equal))
            return f"{ours.reshape(-1)[at]!r} for {expected.reshape(-1)[at]!r} at {at}"
    return ""
