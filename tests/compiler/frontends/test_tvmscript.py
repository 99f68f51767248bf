import numpy as np
import pytest

from autopipe.compiler.frontends.imported import Value
from autopipe.compiler.frontends.onnx.load import load_model
from autopipe.compiler.frontends.tvmscript import gate
from autopipe.compiler.frontends.tvmscript.load import load_tvmscript
from autopipe.compiler.frontends.tvmscript.roles import find_roles
from autopipe.config.model import Input, Weights
from autopipe.errors import ConfigError, ModelError
from autopipe.formats import FORMATS
from tests.compiler.frontends.models import compiled
from tests.compiler.frontends.sources import DENSE, DOUBLE, EMBED, HEAD, block, main
from tests.faults.hostile import HIDDEN

DRAWN = Weights()


def load(source, tmp_path, *, inputs=None, weights=None, sha256=None):
    path = tmp_path / "model.py"
    path.write_bytes(source if isinstance(source, bytes) else source.encode())
    assert FORMATS["tvmscript"].list_files(path) == {"model": path}
    return load_tvmscript(path, inputs or {}, weights, sha256)


def refused(source, tmp_path, **options):
    with pytest.raises(ModelError) as caught:
        load(source, tmp_path, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix(str(tmp_path / "model.py"))


def test_a_primfunc_is_a_model_of_what_it_reads_and_writes(tmp_path):
    found = load(DOUBLE, tmp_path)
    assert found.inputs == (Value(name="x", shape=(4, 3), dtype="float32"),)
    assert found.outputs == (Value(name="y", shape=(4, 3), dtype="float32"),)
    assert (found.name, found.opset, found.synthesized) == ("model", None, False)
    assert found.write_reference is None
    x = np.arange(12, dtype="f").reshape(4, 3)
    np.testing.assert_array_equal(compiled(found, {"x": x})[0], 2 * x)


def test_what_a_later_block_reads_may_be_a_result_too(tmp_path):
    both = """
    for i, j in T.grid(4, 3):
        with T.sblock("more"):
            v_i, v_j = T.axis.remap("SS", [i, j])
            z[v_i, v_j] = y[v_i, v_j] + T.float32(1)
"""
    head = DOUBLE.replace(
        'y: T.Buffer((4, 3), "float32")',
        'y: T.Buffer((4, 3), "float32"), ' + 'z: T.Buffer((4, 3), "float32")',
    )
    found = load(head + both, tmp_path)
    assert [value.name for value in found.outputs] == ["y", "z"]
    x = np.ones((4, 3), "f")
    for ours, expected in zip(compiled(found, {"x": x}), [2 * x, 2 * x + 1], strict=True):
        np.testing.assert_array_equal(ours, expected)


def test_a_module_may_hold_one_primfunc_only_with_its_result_first(tmp_path):
    source = DOUBLE.replace(
        'x: T.Buffer((4, 3), "float32"), y: T.Buffer((4, 3), "float32")',
        'y: T.Buffer((4, 3), "float32"), x: T.Buffer((4, 3), "float32")',
    )
    body = source.split("\n\n\n")[1].replace("\n", "\n    ")
    found = load(f"{HEAD}\n@I.ir_module\nclass Module:\n    {body}", tmp_path)
    assert [value.name for value in (*found.inputs, *found.outputs)] == ["x", "y"]
    x = np.ones((4, 3), "f")
    np.testing.assert_array_equal(compiled(found, {"x": x})[0], 2 * x)


def test_relax_with_a_primfunc_and_drawn_weights(tmp_path):
    found = load(DENSE, tmp_path, weights=DRAWN)
    assert [value.name for value in found.inputs] == ["x"]
    assert {name: array.shape for name, array in found.weights.items()} == {
        "weight": (3, 4), "bias": (4,),
    }  # fmt: skip
    assert found.synthesized
    x = np.random.default_rng(0).standard_normal((2, 3), "f")
    expected = np.maximum(x @ found.weights["weight"] + found.weights["bias"], 0)
    np.testing.assert_allclose(compiled(found, {"x": x})[0], expected, rtol=1e-5, atol=1e-6)


def test_the_seed_says_which_weights(tmp_path):
    one, same, other = (
        load(DENSE, tmp_path, weights=Weights(seed=seed)).weights["weight"] for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()


def test_a_kernel_behind_a_relu_is_drawn_for_half_the_square(tmp_path):
    source = main(
        "a = R.matmul(x, w)\nb = R.nn.relu(a)\nc = R.matmul(b, v)\n"
        "d = R.nn.batch_norm(c, g, h, m, s, axis=1)\ny = R.add(d[0], e)",
        arguments='x: R.Tensor((2, 64), "float32"), w: R.Tensor((64, 64), "float32"), '
        'v: R.Tensor((64, 64), "float32"), g: R.Tensor((64,), "float32"), '
        'h: R.Tensor((64,), "float32"), m: R.Tensor((64,), "float32"), '
        's: R.Tensor((64,), "float32"), e: R.Tensor((64,), "float32")',
        attributes='{"num_input": 1}',
    )
    found = load(source, tmp_path, weights=DRAWN)
    known = find_roles(found.module, list(found.weights))
    assert [(known[name].kind, known[name].fan_in) for name in "wv"] == [("kernel", 64)] * 2
    assert known["v"].data.square == 0.5
    assert found.weights["v"].std() == pytest.approx((2 / 64) ** 0.5, rel=0.1)
    assert (known["g"].kind, known["s"].kind, known["e"].kind) == ("scale", "variance", "shift")
    assert (found.weights["s"] > 0).all()


def test_weights_need_values(tmp_path):
    assert "weights (weight, bias)" in refused(DENSE, tmp_path)
    whole = EMBED.replace('table: R.Tensor((7, 3), "float32")', 'table: R.Tensor((7, 3), "int32")')
    assert "weight 'table' is int32; only floats" in refused(whole, tmp_path, weights=DRAWN)


def test_an_input_that_selects_is_bounded(tmp_path):
    assert load(EMBED, tmp_path, weights=DRAWN).selects == {"ids": 7}
    assert load(DENSE, tmp_path, weights=DRAWN).selects == {}


def test_constants_stay_in_the_source(tmp_path):
    found = load(main('y = R.add(x, R.const([1.0, 2.0, 3.0], "float32"))'), tmp_path)
    x = np.zeros((2, 3), "f")
    np.testing.assert_array_equal(compiled(found, {"x": x})[0], x + np.array([1, 2, 3]))


def test_symbols_are_bound_by_the_pipeline(tmp_path):
    source = main("y = R.add(x, x)", arguments='x: R.Tensor(("n", 3), "float32")')
    found = load(source, tmp_path, inputs={"x": Input(shape=(5, 3))})
    assert found.inputs[0].shape == found.outputs[0].shape == (5, 3)
    assert "size that is not known" in refused(source, tmp_path)


@pytest.mark.parametrize(
    ("inputs", "reason"),
    [
        ({"z": Input(shape=(4, 3))}, "no such input"),
        ({"x": Input(shape=(4, 4))}, r"x.shape: \[4, 4\], the model has \[4, 3\]"),
        ({"x": Input(shape=(4, 3), dtype="int8")}, "int8 is given, the model has float32"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(tmp_path, inputs, reason):
    with pytest.raises(ConfigError, match=reason):
        load(DOUBLE, tmp_path, inputs=inputs)


def test_a_source_in_place_of_an_onnx_model_is_told_apart(tmp_path):
    (tmp_path / "model.py").write_text(DOUBLE)
    with pytest.raises(ModelError, match=r"needs model\.format: tvmscript"):
        load_model(tmp_path / "model.py", {}, None, None)


def test_a_digest_is_held(tmp_path):
    assert "the pipeline asks for 000" in refused(DOUBLE, tmp_path, sha256="0" * 64)


EVIL = {
    "attributes of classes": ("y = ().__class__.__base__", "underscore"),
    "import by name": ("y = __import__('os')", "cannot be called|underscore"),
    "builtin": ("y = R.add(x, eval)", "'eval' is not defined"),
    "open": ("y = open('/etc/passwd')", "open cannot be called"),
    "tvm": ("y = tvm.runtime.load_module('a.so')", "tvm.runtime.load_module cannot be called"),
    "module behind T": ("y = T.parser.entry.inspect", "T.parser.entry.inspect is not allowed"),
    "builder": ("y = R.builder.ir.sys", "R.builder.ir.sys is not allowed"),
    "emit te": ("y = R.emit_te(print, x)", "R.emit_te is not allowed"),
    "packed": ("y = R.call_packed('system', x, ty_args=R.Tensor)", "R.call_packed"),
    "dps": ("y = R.call_dps_packed('f', x, out_ty=R.Tensor((2, 3)))", "R.call_dps_packed"),
    "print": ("y = R.print(x, format='{}')", "R.print"),
    "lambda": ("y = (lambda: x)()", "cannot be called|Lambda"),
    "comprehension": ("y = [x for i in (1, 2)]", "ListComp is no part"),
    "format": ("y = f'{x}'", "JoinedStr is no part"),
    "walrus": ("y = (z := x)", "NamedExpr is no part"),
    "power": ("y = R.add(x, 9**9**9)", "Pow is no part"),
    "shift": ("y = R.add(x, 1 << 999999999999)", "LShift is no part"),
    "huge number": (f"y = R.add(x, {'9' * 40})", "more than 64"),
    "huge string": (f"y = R.add(x, '{'a' * 2000}')", "a string of 2000 characters"),
    "while": ("while True:\n    y = x", "While is no part"),
    "raise": ("raise x", "Raise is no part"),
    "import inside": ("from tvm.script import ir as I\ny = x", "do not stand inside|imported"),
    "shadowing": ("T = x\ny = x", "'T' is TVM's"),
    "unpacked keywords": ("y = R.add(**x)", r"\*\* is not allowed"),
    "delete": ("del x\ny = x", "Delete is no part"),
    "global": ("global z\ny = x", "Global is no part"),
    "method": ("y = x.handle.free()", "is not allowed|cannot be called"),
}


@pytest.mark.parametrize("case", EVIL)
def test_what_is_more_than_a_model_is_refused_with_its_line(tmp_path, case):
    import re

    body, reason = EVIL[case]
    message = refused(main(body), tmp_path)
    assert re.match(r":1[0-9]: ", message), message
    assert re.search(reason, message), message


def test_nothing_of_a_source_is_run(tmp_path):
    mark = tmp_path / "mark"
    evil = f"open({str(mark)!r}, 'w').close()\n"
    for source in (
        evil + DOUBLE,
        DOUBLE + evil,
        DOUBLE.replace("@T.prim_func(s_tir=True)", f"@T.prim_func(s_tir={evil.strip()})"),
        DOUBLE.replace('"float32")', evil.strip() + ")", 1),
        DOUBLE.replace("T.float32(2)", evil.strip()),
        DOUBLE.replace("def double(", f"def double(z={evil.strip()}, "),
    ):
        assert source != DOUBLE
        assert refused(source, tmp_path).startswith(":")
        assert not mark.exists()


ODD = {
    "empty": (b"", ":1: no TVMScript: 0 classes and functions"),
    "other python": (b"x = 1\n", ":1: a model is one class or one PrimFunc"),
    "syntax": (HEAD.encode() + b"\ndef f(:\n", ":6: invalid syntax"),
    "binary": (b"\x08\x07\x12\xff\x00", ":1: not text in UTF-8"),
    "nul": (b"a\0b", ":1: "),
    "two": (DOUBLE.encode() + DOUBLE.encode().replace(HEAD.encode(), b""), ":1: no TVMScript: 2"),
    "undecorated": (b"def f():\n    return 1\n", ":1: f needs one decorator"),
    "imports": (b"import os\n", ":1: Import is no part"),
    "other imports": (b"from os import path as T\n", ":1: only ir, relax, tirx"),
    "other names": (b"from tvm.script import tirx\n", ":1: write: from tvm.script import tirx as"),
    "bases": (b"@I.ir_module\nclass M(T):\n    x: T\n", ":2: the class of a model has no bases"),
    "deep": (b"x = " + b"(" * 5000 + b")" * 5000, ":1: "),
    "deep operators": (main("y = " + "-" * 500 + "x").encode(), ":11: nested more than 100 deep"),
    "long": (b"#" * (gate.MAX_BYTES + 1), ": more than 1048576 bytes"),
}  # fmt: skip


@pytest.mark.parametrize("case", ODD)
def test_what_is_no_tvmscript_is_refused(tmp_path, case):
    source, reason = ODD[case]
    assert refused(source, tmp_path).startswith(reason)


@pytest.mark.fault("A18")
@pytest.mark.parametrize("character", HIDDEN)
def test_what_is_hidden_in_a_comment_is_refused(tmp_path, character):
    source = f"{DOUBLE}# fine{character}x = 1\n"
    line = source.count("\n")
    said = f":{line}: U+{ord(character[0]):04X} is not shown as it is read"
    assert refused(source.encode(), tmp_path) == said


WRONG = {
    "unknown name": (block("y[v] = z[v]"), ":11: 'z' is not defined"),
    "unknown word": (
        block("y[v] = T.expo(x[v])"),
        ":11: T.expo is not allowed in a model; did you mean T.exp",
    ),
    "out of bounds": (block("y[v] = x[v + 1]"), "Out of bounds memory access on buffer x"),
    "in place": (block("x[v] = x[v] + T.float32(1)\n            y[v] = x[v]"), "read and written"),
    "unused": (block("y[v] = T.float32(1)"), "'x' is neither read nor written"),
    "no buffer": (block("y[v] = x", head='x: T.int32, y: T.Buffer((4,), "int32")'), "no T.Buffer"),
    "code in a block": (
        block('T.sblock_attr({"pragma_import_c": "int f;"})\n            y[v] = x[v]'),
        "annotation 'pragma_import_c' is not allowed",
    ),
    "extern": (block('y[v] = T.call_extern("float32", "f", x[v])'), ":11: T.call_extern"),
    "attribute": (
        DOUBLE.replace("    for i,", '    T.func_attr({"tirx.is_scheduled": True})\n    for i,'),
        "attribute 'tirx.is_scheduled' is not allowed",
    ),
    "ops that do not fit": (main("y = R.matmul(x, x)"), ":11: Matmul requires"),
    "call that does not fit": (
        DENSE.replace("b: T.Buffer((4,)", "b: T.Buffer((2,)").replace("b[v_j]", "b[v_i]"),
        "shift takes float32[2, 4], float32[2], float32[2, 4]; main calls it with",
    ),
    "no main": (DENSE.replace("def main(", "def other("), "one Relax function, named main"),
    "huge": (DOUBLE.replace("4, 3)", "65536, 65536)"), "more than 2147483648"),
    "a dtype of its own": (
        main("y = R.add(x, x)", arguments='x: R.Tensor((2, 3), "bfloat16")'),
        "parameter 'x' is bfloat16, not one of",
    ),
    "huge between": (
        main('z = R.zeros(R.shape([99999, 99999]), "float32")\ny = R.add(x, R.sum(z))'),
        "value 'z' is [99999, 99999], more than 2147483648 elements",
    ),
    "branch": (
        main(
            "if c:\n    y = R.add(x, x)\nelse:\n    y = x",
            arguments='x: R.Tensor((2, 3), "float32"), c: R.Tensor((), "bool")',
        ),
        "main has a branch",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_model_that_can_not_be_compiled_is_refused(tmp_path, case):
    source, reason = WRONG[case]
    assert reason in refused(source, tmp_path)
