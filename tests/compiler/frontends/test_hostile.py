"""Sources and models that are made to run code, or to take all memory."""

import contextlib
import dataclasses

import pytest
from onnx import TensorProto
from onnx import helper as make

from autopipe.compiler.frontends import bounds
from autopipe.compiler.frontends.onnx.load import load_model
from autopipe.compiler.frontends.tvmscript import attributes, gate, load, parse, strings
from autopipe.config.model import Weights
from autopipe.errors import ModelError
from autopipe.processes import seccomp
from tests.compiler.frontends.sources import DENSE, DOUBLE, EMBED, HEAD, block, main
from tests.compiler.frontends.test_tvmscript import load as read
from tests.compiler.frontends.test_tvmscript import refused
from tests.support.table import each_row


def places(code):
    """Return a source for each place where TVM evaluates a string, or might."""
    tensor = f'R.Tensor(("{code}", 3), "float32")'
    double = "y = R.add(x, x)"
    return {
        "parameter": main(double, arguments=f"x: {tensor}"),
        "named shape": main(double, arguments=f'x: R.Tensor(shape=["{code}"], dtype="float32")'),
        "returned": main(double).replace('"float32")):', f'"float32")) -> {tensor}:'),
        "tuple": main(double, arguments=f"x: R.Tuple({tensor})"),
        "nested": main(double, arguments=f"x: R.Tuple(R.Tuple([{tensor}]))"),
        "shape": main(double, arguments=f'x: R.Shape(["{code}"])'),
        "binding": main(f"y: {tensor} = R.add(x, x)"),
        "call": main(f"y = R.call_tir(x, (x,), out_ty={tensor})"),
        "variable": main(f'code = "{code}"\ny: R.Tensor((code, 3), "float32") = R.add(x, x)'),
        "joined": main(double, arguments=f'x: R.Tensor(("{code}" + "", 3), "float32")'),
        "chosen": main(double, arguments=f'x: R.Tensor((1 and "{code}", 3), "float32")'),
        "dtype": main(double, arguments=f'x: R.Tensor((2, 3), "{code}")'),
        "device": main(double, arguments=f'x: R.Tensor((2, 3), "float32", vdevice="{code}")'),
        "buffer": DOUBLE.replace("x: T.Buffer((4, 3)", f'x: T.Buffer(("{code}", 3)'),
        "buffer's shape": DOUBLE.replace("x: T.Buffer((4, 3)", f'x: T.Buffer(shape=("{code}",)'),
        "buffer's index": DOUBLE.replace("x: T.Buffer((4, 3),", f'x: T.Buffer["{code}",'),
        "buffer's layout": block("y[v] = x[v]").replace(
            '"float32")', f'"float32", layout="{code}")'
        ),
        "buffer's result": DOUBLE.replace('"float32")):', f'"float32")) -> T.Buffer(("{code}",)):'),
        "constant": main(f'y = R.add(x, R.const("{code}"))'),
        "operator": main(f'y = R.einsum(x, subscripts="{code}")'),
        "block": DOUBLE.replace('T.sblock("double")', f'T.sblock("{code}")'),
        "axes": DOUBLE.replace('"SS"', f'"{code}"'),
        "number": DOUBLE.replace("T.float32(2)", f'T.float32("{code}")'),
        "decorator": DOUBLE.replace("s_tir=True", f's_tir="{code}"'),
        "attribute": DENSE.replace('"num_input": 1', f'"num_input": "{code}"'),
        "key": DENSE.replace('"num_input": 1', f'"{code}": 1'),
    }  # fmt: skip


PLACES = sorted(places(""))


@pytest.mark.fault("J1")
@pytest.mark.parametrize("place", PLACES)
def test_a_string_is_no_code_anywhere(tmp_path, place):
    mark = tmp_path / "mark"
    source = places(f"__import__('os').system('touch {mark}') or 2")[place]
    assert refused(source, tmp_path, weights=Weights())[:1] == ":"
    assert not mark.exists()


@pytest.mark.parametrize("text", ["n", "n * 2", "batch // 2 + 1", "n1"])
def test_sizes_are_names_and_sums(text):
    assert strings.is_size(text)


@pytest.mark.fault("J1")
@each_row(
    "text",
    ["open('x')", "n.real", "n[0]", "9 ** 9", "9**9**9", "__import__", "_n", "n or 2", "print",
     "lambda", "n\n", "n; m", "(n)", "n if m else 2", "", "ñ()", "n,", "'n'", "f''", "{n}"],
)  # fmt: skip
def test_sizes_are_nothing_else(text):
    assert not strings.is_size(text)


@pytest.mark.skipif(not seccomp.works(), reason="this kernel has no seccomp")
@pytest.mark.fault("J3")
@pytest.mark.parametrize(
    "code",
    [
        "__import__('os').system('touch {}') or 2", "open('{}', 'w') and 2",
        "__import__('subprocess').run(['touch', '{}']) and 2", "__import__('os').mkdir('{}') or 2",
    ],
)  # fmt: skip
def test_without_the_gate_code_reaches_nothing(tmp_path, monkeypatch, code):
    monkeypatch.setattr(gate, "admit", lambda data: data.decode().replace(HEAD, ""))
    mark = tmp_path / "mark"
    source = main("y = R.add(x, x)", arguments='x: R.Tensor(("CODE", 3), "float32")')
    with contextlib.suppress(ModelError):
        parse.parse_source(source.replace("CODE", code.format(mark)).encode())
    assert not mark.exists()


@pytest.mark.skipif(not seccomp.works(), reason="this kernel has no seccomp")
@pytest.mark.fault("J3")
def test_without_the_gate_no_connection_is_opened(monkeypatch):
    monkeypatch.setattr(gate, "admit", lambda data: data.decode().replace(HEAD, ""))
    code = "__import__('socket').socket() and 2"
    source = main("y = R.add(x, x)", arguments=f'x: R.Tensor(("{code}", 3), "float32")')
    with pytest.raises(ModelError, match="Operation not permitted"):
        parse.parse_source(source.encode())


@pytest.mark.fault("J4")
def test_where_nothing_confines_the_parser_a_model_says_so(tmp_path, monkeypatch):
    assert read(DOUBLE, tmp_path).warnings == ()
    monkeypatch.setattr(load, "works", lambda: False)
    assert "no seccomp here" in read(DOUBLE, tmp_path).warnings[0]


ATTRIBUTES = [
    '"Codegen": "x"', '"external_mods": []', '"Composite": "x"', '"Primitive": 1', '"target": "c"',
    '"pragma_import_llvm": "x"', '"num_input": "1"', '"num_input": -1', '"global_symbol": "a.b"',
    '"relax.force_pure": "yes"', '"num_input": True', '"op_pattern": 1',
]  # fmt: skip


@pytest.mark.fault("J2")
@pytest.mark.parametrize("attribute", ATTRIBUTES)
def test_attributes_are_those_that_models_need(tmp_path, attribute):
    source = main("y = R.add(x, x)", attributes=f"{{{attribute}}}")
    message = refused(source, tmp_path)
    assert message.startswith(":10: the attribute")
    assert "in a model" in message


@pytest.mark.fault("J2")
@pytest.mark.parametrize("attribute", ATTRIBUTES)
def test_attributes_are_looked_at_after_parsing_too(tmp_path, monkeypatch, attribute):
    monkeypatch.setattr(attributes, "OF", {})
    monkeypatch.setattr(gate, "_check_strings", lambda *_: None)
    source = main("y = R.add(x, x)", attributes=f"{{{attribute}}}")
    assert "in a model" in refused(source, tmp_path) or "num_input is" in refused(source, tmp_path)


@pytest.mark.fault("J2")
def test_a_function_has_no_name_of_ours(tmp_path):
    source = DENSE.replace("shift(", "main_transform_params(").replace(
        "cls.shift,", "cls.main_transform_params,"
    )
    assert "a function of autopipe has this name" in refused(source, tmp_path, weights=Weights())


@pytest.mark.fault("J1")
def test_only_the_module_has_functions(tmp_path):
    source = DENSE.replace("shift(", "name_hint(").replace("cls.shift,", "x.name_hint,")
    assert ".name_hint is not allowed" in refused(source, tmp_path, weights=Weights())


@pytest.mark.parametrize("source", [DOUBLE, DENSE, EMBED])
def test_right_models_pass(source):
    assert gate.admit(source.encode())


def constant(index, shape):
    sizes = make.make_tensor("t", TensorProto.INT64, [len(shape)], shape)
    return [
        make.make_node("Constant", [], [f"s{index}"], value=sizes),
        make.make_node("ConstantOfShape", [f"s{index}"], [f"c{index}"], name=f"big{index}"),
        make.make_node("ReduceSum", [f"c{index}"], [f"r{index}"], keepdims=0),
        make.make_node("Add", ["x" if not index else f"a{index - 1}", f"r{index}"], [f"a{index}"]),
    ]


def onnx_file(path, nodes, result):
    value = make.make_tensor_value_info
    shape = [4] if result.startswith("a") else []
    graph = make.make_graph(
        nodes, "g", [value("x", TensorProto.FLOAT, [4])], [value(result, TensorProto.FLOAT, shape)]
    )
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


def grown(operator, name, *inputs, **values):
    constants = [
        make.make_node(
            "Constant", [], [key], value=make.make_tensor(key, TensorProto.INT64, [len(v)], v)
        )
        for key, v in values.items()
    ]
    return [
        *constants, make.make_node(operator, [*inputs], ["e"], name=name),
        make.make_node("ReduceMax", ["e"], ["y"], keepdims=0),
    ]  # fmt: skip


HUGE = {
    "one": (constant(0, [32768, 32768]), "a0", "'big0'.* 4096 MiB, more than 1024 MiB"),
    "sum": ([n for i in range(3) for n in constant(i, [16000] * 2)], "a2", "'big1'.* 1953 MiB"),
    "expand": (
        grown("Expand", "grow", "x", "s", s=[16384, 16384, 4]), "y", "'grow'.* 4096 MiB, more than",
    ),
    "pad": (grown("Pad", "grow", "x", "s", s=[0, 2**30]), "y", "'grow'.* 4096 MiB, more than"),
}  # fmt: skip


@pytest.mark.fault("J5")
@pytest.mark.parametrize("case", HUGE)
def test_a_small_file_does_not_take_all_memory(tmp_path, case):
    nodes, result, reason = HUGE[case]
    path = onnx_file(tmp_path / "model.onnx", nodes, result)
    assert path.stat().st_size < 700
    with pytest.raises(ModelError, match=reason):
        load_model(path, {}, None, None)


@pytest.mark.fault("J5")
def test_what_a_source_makes_of_nothing_is_bounded_in_sum(tmp_path):
    zeros = 'R.sum(R.zeros(R.shape([12000, 12000]), "float32"))'
    body = f"a = R.add(x, {zeros})\nb = R.add(a, {zeros})\ny = R.add(b, R.multiply(x, x))"
    assert "computed of constants alone comes to 1098 MiB" in refused(main(body), tmp_path)


@pytest.mark.fault("J5")
def test_weights_that_are_drawn_are_bounded_in_sum(tmp_path):
    source = EMBED.replace('R.Tensor((7, 3), "float32")', 'R.Tensor((400000000, 3), "float32")')
    assert "weight 'table'" in refused(source, tmp_path, weights=Weights())


@pytest.mark.fault("J5")
def test_tensors_between_are_bounded_where_they_are_alive(tmp_path):
    limits = dataclasses.replace(bounds.BOUNDS, alive=100, alive_share=0)
    steps = [
        bounds.Computation("one", ("x",), {"a": 60}), bounds.Computation("two", ("a",), {"b": 30}),
        bounds.Computation("three", ("b",), {"c": 60}),
    ]  # fmt: skip
    bounds.check_memory(
        steps, input_bytes={"x": 10}, weight_bytes=0, output_names={"c"}, bounds=limits
    )
    with pytest.raises(ModelError, match="two: the tensors that are alive"):
        bounds.check_memory(
            [*steps[:2], bounds.Computation("three", ("a", "b"), {"c": 60})],
            input_bytes={"x": 10}, weight_bytes=0, output_names={"a", "c"},
            bounds=dataclasses.replace(limits, alive=80),
        )  # fmt: skip


def test_a_large_batch_passes():
    steps = [bounds.Computation(f"layer {i}", (f"v{i}",), {f"v{i + 1}": 2**29}) for i in range(50)]
    bounds.check_memory(steps, input_bytes={"v0": 2**26}, weight_bytes=2**27, output_names={"v50"})


def test_sizes_in_words_still_pass(tmp_path):
    source = main("y = R.add(x, x)", arguments='x: R.Tensor(("n * 2", "n"), "float32")')
    assert "size that is not known" in refused(source, tmp_path)
