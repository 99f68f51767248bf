"""Attention in a graph becomes one call where nobody else needs what lies between."""

from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op

from autopipe.compiler.attention import AttentionForm
from autopipe.compiler.fusion.fusion_rules import FusionRules
from autopipe.compiler.fusion.scope import Scope
from autopipe.compiler.lowering import lower
from autopipe.compiler.passes.fuse_attention import fuse_attention
from tests.compiler import graphs
from tests.support.table import each_row

HEADS, SIZE = (1, 16, 3, 8), 16


def number(value: float) -> relax.Expr:
    return relax.const(np.float32(value))


def model(change: dict[str, Any]) -> tvm.IRModule:
    """Attention as exporters write it. `change` says what is different."""
    outer = change.get("shape", HEADS)
    names = {
        "query": outer,
        "key": outer,
        "value": outer,
        "mask": change.get("mask", (1, 1, 1, 16)),
    }
    params = [relax.Var(n, relax.TensorType(shape, "float32")) for n, shape in names.items()]
    query, key, value, mask = params
    builder = relax.BlockBuilder()
    emit = builder.emit
    with builder.function("main", params):
        with builder.dataflow():
            order = change.get("order", (0, 2, 1, 3))
            turned = [emit(op.permute_dims(one, order)) for one in (query, value)]
            product = emit(op.matmul(turned[0], emit(op.permute_dims(key, (0, 2, 3, 1)))))
            scores = product
            for step in change.get("steps", ("divide", "mask")):
                scaled = {"mask": lambda x: op.add(x, mask), "masked": lambda x: op.add(mask, x),
                          "divide": lambda x: op.divide(x, number(2.5)),
                          "multiply": lambda x: op.multiply(x, number(0.3)),
                          "exp": op.exp}  # fmt: skip
                scores = emit(scaled[step](scores))
            shares = emit(op.nn.softmax(scores, change.get("axis", -1)))
            result = emit(op.matmul(shares, turned[1]))
            if change.get("after", True):
                result = emit(op.permute_dims(result, (0, 2, 1, 3)))
            also = {"product": product, "shares": shares}.get(change.get("also", ""))
            results = [builder.emit_output(one) for one in (result, also) if one is not None]
        builder.emit_func_output(results[0] if len(results) == 1 else relax.Tuple(results))
    return builder.get()


def called(module: tvm.IRModule) -> list[str]:
    """Return what `main` calls: ops, and PrimFuncs."""
    values = [b.value for block in module["main"].body.blocks for b in block.bindings]
    calls = [v for v in values if isinstance(v, relax.Call)]
    return [v.args[0].name_hint if v.op.name == "relax.call_tir" else v.op.name for v in calls]


JOINED: dict[str, dict[str, Any]] = {
    "as exporters write it": {},
    "without a mask": {"steps": ("multiply",)},
    "a mask for each query, first in its sum": {"steps": ("masked",), "mask": (1, 3, 16, 1)},
    "scaled twice, not turned back": {"steps": ("multiply", "divide", "mask"), "after": False},
    "neither scaled nor masked": {"steps": ()},
}

APART: dict[str, dict[str, Any]] = {
    "scores are a result": {"also": "product"},
    "shares are a result": {"also": "shares"},
    "shares of queries": {"axis": 2},
    "something else before the softmax": {"steps": ("divide", "exp")},
    "a mask that is scaled": {"steps": ("mask", "divide")},
    "two masks": {"steps": ("mask", "mask")},
    "few numbers of a head": {"shape": (1, 16, 3, 4)},
    "few queries": {"shape": (1, 4, 3, 8), "mask": (1, 1, 1, 4)},
}


@each_row("case", JOINED)
def test_attention_is_one_call_and_computes_the_same(case):
    module = model(JOINED[case])
    joined = fuse_attention(module)
    assert called(joined)[:1] == ["attention"]
    assert len(called(joined)) == 1
    arrays = graphs.arguments(module)
    found, expected = graphs.run(joined, arrays), graphs.expected(module, arrays)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@each_row("case", APART)
def test_what_is_something_else_stays(case):
    module = model(APART[case])
    assert fuse_attention(module).same_as(module)


def test_the_example_of_the_docstring():
    joined = fuse_attention(model({}))
    (function,) = [f for _, f in joined.functions_items() if isinstance(f, tvm.tirx.PrimFunc)]
    form = AttentionForm.model_validate_json(str(function.attrs["autopipe.attention"]))
    turned = (0, 2, 1, 3)
    assert form == AttentionForm(
        query=turned, key=turned, value=turned, result=turned, scale=0.4, masked=True
    )


def test_lowering_makes_one_task_of_it_where_no_rule_says_otherwise():
    module = model({})
    assert called(lower(module, graphs.TARGET)) == ["attention1"]
    rules = FusionRules(join=[["nn.softmax", "matmul"]])
    scope = Scope(rules, refusal=lambda _: None, warn=lambda _: None)
    apart = called(lower(module, graphs.TARGET, scope=scope))
    assert len(apart) > 1
    assert "attention1" not in apart
