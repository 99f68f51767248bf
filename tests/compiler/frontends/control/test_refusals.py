"""Control flow that cannot be compiled is reported in one line."""

import pytest

from autopipe.compiler.frontends.onnx.load import load_model
from autopipe.errors import ModelError
from tests.compiler.frontends.control.control_models import parsed
from tests.compiler.frontends.models import save
from tests.support.table import each_row

_LOOP = """
g (float[1,4] x, int64 n, bool go) => (float[1,4] y) {{
  huge = Constant<value = int64 {{9223372036854775807}}>()
  many = Constant<value = int64 {{2000000}}>()
  zero = Constant<value = int64 {{0}}>()
  true = Constant<value = bool {{1}}>()
  {call} <body = b (int64 i, bool c, float[a,4] h) => (bool c2, float[b,4] h2{more}) {{ {body} }}>
  {last}
}}"""
_SAME = "c2 = Identity(c) h2 = Tanh(h)"
_COMPUTED = "k = Less(i, n) c2 = And(k, go) h2 = Tanh(h)"
_GROWS = "c2 = Identity(c) h2 = Concat<axis = 0>(h, h)"
_BRANCHES = """
g (float[1,4] x, bool c) => (float[r,4] y) {
  y = If(c) <then_branch = a () => (float[1,4] p) { p = Tanh(x) },
             else_branch = b () => (float[2,4] q) { q = Concat<axis = 0>(x, x) }>
}"""
_SCAN = """
g (float[1,2,4] x) => (float[1,4] y) {
  s = Constant<value = float[1,4] {1, 2, 3, 4}>()
  y = Scan<num_scan_inputs = 1, body = b (float[4] h, float[4] e) => (float[4] h2) {
    h2 = Add(h, e) }>("", s, x)
}"""


def loop(call, body=_SAME, more="", last=""):
    return _LOOP.format(call=call, body=body, more=more, last=last)


@each_row(
    "text, opset, message",
    [
        (loop('y = Loop("", "", x)'), 17, "Loop 'y' never ends: no number of rounds is given"),
        (loop('y = Loop(huge, "", x)'), 17, "Loop 'y' never ends: 9223372036854775807 rounds"),
        (loop("y = Loop(huge, true, x)"), 17, "never ends"),
        (
            loop("", last="""k, y = Loop("", "", zero, x) <
              body = b (int64 i, bool c, int64 k, float[1,4] h)
                => (bool c2, int64 k2, float[1,4] h2) {
                  k2 = Mul(k, k) c2 = Less(k2, many) h2 = Tanh(h) }>""").replace(
                "<body = b (int64 i, bool c, float[a,4] h) => (bool c2, float[b,4] h2) "
                "{ c2 = Identity(c) h2 = Tanh(h) }>", ""),
            17,
            "Loop 'k' never ends: nothing that its condition reads ever changes",
        ),
        (
            loop('w, r = Loop(n, "", x)', _SAME + " o = Relu(h)", ", float[1,4] o",
                 "y = Add(w, x)"),
            17,
            "Loop 'w' runs is not known before the model runs, nor how long the last 1",
        ),
        (
            loop("w, r = Loop(many, true, x)", _COMPUTED + " o = Relu(h)", ", float[1,4] o",
                 "y = Add(w, x)"),
            17,
            "is not known before the model runs",
        ),
        (
            loop('w = Loop(n, "", x)', _GROWS, last="y = ReduceSum(w)"), 17,
            "state 'h' of Loop 'w' is float32 [1, 4] and comes out as float32 [2, 4]",
        ),
        (
            loop('w, r = Loop(many, "", x)', _SAME + " e = Shape(h) o = Expand(h, big)",
                 ", float[d,4] o", "y = Add(w, x)").replace(
                "zero =", "big = Constant<value = int64[2] {256, 4}>() zero ="),
            17,
            "Loop 'w': the tensors that are alive with its results take 7812 MiB",
        ),
        (
            loop('w, r = Loop(zero, "", x)', _SAME + " o = Relu(h)", ", float[1,4] o",
                 "q = ReduceSum<keepdims = 0>(r) y = Add(w, q)"),
            17,
            "does not run, so that its output 'r' is empty",
        ),
        (_BRANCHES, 17, "is float32 [1, 4] in one branch and float32 [2, 4] in the other"),
        (_SCAN, 8, "is that of opset 8"),
    ],
)  # fmt: skip
def test_what_can_not_be_compiled_is_told_in_one_line(text, opset, message, tmp_path):
    model = parsed(text, opset)
    with pytest.raises(ModelError) as refused:
        load_model(save(model, tmp_path), {}, None, None)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
