import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from safetensors.numpy import load_file, save_file

from autopipe.artifacts.model import ImportedModel
from autopipe.compiler.step_counter import count_with
from autopipe.config.model import Weights
from autopipe.errors import ConfigError, ModelError, StageError
from autopipe.pipeline.stage import Context
from autopipe.processes import call
from autopipe.stages.import_model import ImportStage
from autopipe.verification import reference
from tests.compiler.frontends.control.control_models import parsed
from tests.compiler.frontends.models import dense, run, save
from tests.compiler.frontends.sources import EMBED

pytest.importorskip("onnxruntime")


@pytest.fixture
def refused(tmp_path):
    """A model and a case that onnxruntime, without a convolution in float64, can not run."""
    ports = [helper.make_tensor_value_info(n, TensorProto.DOUBLE, [1, 1, 2, 2]) for n in "xky"]
    graph = helper.make_graph([helper.make_node("Conv", ["x", "k"], ["y"])], "g", [], ports[2:])
    ports[1].type.tensor_type.shape.dim[2].dim_value = 1
    ports[1].type.tensor_type.shape.dim[3].dim_value = 1
    graph.input.extend(ports[:2])
    opset = helper.make_opsetid("", 17)
    onnx.save(
        helper.make_model(graph, opset_imports=[opset], ir_version=8), tmp_path / "reference.onnx"
    )
    arrays = {"x": np.arange(4.0).reshape(1, 1, 2, 2), "k": np.full((1, 1, 1, 1), 3.0)}
    save_file(arrays, tmp_path / "0.safetensors")
    return tmp_path, [tmp_path / "0.safetensors"]


@pytest.mark.fault("E7")
def test_auto_falls_back_where_onnxruntime_has_no_kernel_and_says_so(refused):
    expected = reference.expect(reference.choose_engines("auto", refused[0]), *refused)
    assert expected.engine == "onnx"
    assert expected.version == onnx.__version__
    assert "NOT_IMPLEMENTED" in expected.refusals[0]
    found = load_file(expected.files[0])["y"]
    np.testing.assert_array_equal(found, 3 * np.arange(4.0).reshape(1, 1, 2, 2))


def test_a_reference_asked_for_by_name_has_no_stand_in(refused):
    with pytest.raises(StageError, match=r"the reference onnxruntime failed: .*NOT_IMPLEMENTED"):
        reference.expect(reference.choose_engines("onnxruntime", refused[0]), *refused)


def test_a_loop_that_does_not_end_for_some_inputs_is_told_after_a_while(tmp_path, monkeypatch):
    monkeypatch.setattr(reference, "SECONDS", 0.5)
    model = parsed("""
        g (float[1] x) => (float[1] y) {
          t = Constant<value = bool {1}>()
          y = Loop("", t, x) <
            body = cell (int64 i, bool c, float[1] h) => (bool c2, float[1] h2) {
              h2 = Abs(h)
              zero = Constant<value = float {0}>()
              below = Less(h2, zero)
              c2 = Not(below)
            }>
        }""")
    onnx.save(model, tmp_path / "reference.onnx")
    save_file({"x": np.ones(1, "float32")}, tmp_path / "0.safetensors")
    told = "takes longer than 0.5 s for one case in onnxruntime: does a loop of it never end"
    with pytest.raises(ModelError, match=told):
        reference.expect(reference.ENGINES, tmp_path, [tmp_path / "0.safetensors"])


def imported(path, tmp_path, **fields):
    """Return the artifact of a model."""
    out = tmp_path / "imported"
    out.mkdir()
    stage = ImportStage(path=path, sha256=None, inputs={}, **fields)
    stage.run(Context({}, {}, out, tmp_path / "work", tmp_path / "records", print))
    return out


def test_plain_loops_need_no_onnx(tmp_path):
    source = tmp_path / "embed.py"
    source.write_text(EMBED)
    model = imported(source, tmp_path, format="tvmscript", weights=Weights())
    ids = np.array([6, 0, 3, 3, 1])
    save_file({"ids": ids}, tmp_path / "0.safetensors")
    engines = reference.choose_engines("auto", model)
    assert engines == reference.choose_engines("plain", model) == ("plain",)
    expected = reference.expect(engines, model, [tmp_path / "0.safetensors"])
    assert (expected.engine, expected.outputs) == ("plain", ("rows",))
    table = load_file(model / "weights.safetensors")["table"]
    np.testing.assert_array_equal(load_file(expected.files[0])["rows"], table[ids])
    assert ImportedModel.read(model).selects == {"ids": 7}
    with pytest.raises(ConfigError, match=r"onnx runs ONNX models, .* did you mean 'plain'"):
        reference.choose_engines("onnx", model)


def test_the_outputs_that_a_reference_has_computed_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(call, "_INTERVAL", 0.0)
    model = imported(save(dense(), tmp_path), tmp_path, format="onnx", weights=None)
    counts = []
    cases = [tmp_path / f"{number}.safetensors" for number in range(2)]
    for case in cases:
        save_file({"x": np.zeros((2, 3), "f")}, case)
    with count_with(lambda message, total, **_: lambda done: counts.append((message, done, total))):
        reference.expect(("onnxruntime",), model, cases)
    assert counts[0] == ("reference outputs computed", 0, 2)
    assert counts == sorted(counts)


def test_plain_loops_of_an_onnx_model_agree_with_onnxruntime(tmp_path):
    made = dense()
    model = imported(save(made, tmp_path), tmp_path, format="onnx", weights=None)
    x = np.random.default_rng(0).standard_normal((2, 3), "f")
    save_file({"x": x}, tmp_path / "0.safetensors")
    expected = reference.expect(("plain",), model, [tmp_path / "0.safetensors"])
    np.testing.assert_allclose(load_file(expected.files[0])["y"], run(made, {"x": x})[0], rtol=1e-6)


@pytest.mark.fault("E7")
def test_plain_loops_that_fail_are_no_verification(tmp_path):
    model = imported(save(dense(), tmp_path), tmp_path, format="onnx", weights=None)
    save_file({"x": np.zeros((2, 4), "f")}, tmp_path / "0.safetensors")
    with pytest.raises(StageError, match="the reference plain failed: "):
        reference.expect(("plain",), model, [tmp_path / "0.safetensors"])


def test_a_file_that_says_it_is_newer_than_onnxruntime_has_it_as_its_reference(tmp_path):
    made = dense()
    made.ir_version = onnx.IR_VERSION
    model = imported(save(made, tmp_path), tmp_path, format="onnx", weights=None)
    save_file({"x": np.ones((2, 3), "f")}, tmp_path / "0.safetensors")
    found = reference.expect(("onnxruntime",), model, [tmp_path / "0.safetensors"])
    assert load_file(found.files[0])["y"].shape == (2, 4)


@pytest.fixture
def divided(tmp_path):
    """A model that divides integers, and three cases: the second one by 0."""
    ports = [helper.make_tensor_value_info(name, TensorProto.INT64, [2]) for name in "xwy"]
    graph = helper.make_graph(
        [helper.make_node("Div", ["x", "w"], ["y"])], "g", ports[:2], ports[2:]
    )
    opset = helper.make_opsetid("", 17)
    made = helper.make_model(graph, opset_imports=[opset], ir_version=8)
    onnx.save(made, tmp_path / "reference.onnx")
    cases = [tmp_path / f"{number}.safetensors" for number in range(3)]
    for case, divisor in zip(cases, (2, 0, 3), strict=True):
        save_file({"x": np.array([7, -7]), "w": np.array([divisor, 1])}, case)
    return tmp_path, cases


@pytest.mark.fault("E7")
def test_another_reference_takes_a_case_that_the_first_one_refuses(divided):
    expected = reference.expect(reference.choose_engines("auto", divided[0]), *divided)
    assert expected.engine == "onnxruntime"
    assert expected.engines == {expected.files[1]: "onnx"}
    (told,) = expected.refusals
    assert told.startswith("the reference onnxruntime failed on a case: ")
    assert "division by zero; onnx took its place" in told.lower()
    found = [load_file(file)["y"].tolist() for file in expected.files]
    assert found == [[3, -7], [0, -7], [2, -7]]


@pytest.mark.parametrize("may", ["optional", "doubtful"])
def test_a_case_may_be_refused(divided, may):
    model, cases = divided
    engines = reference.RUNTIMES if may == "doubtful" else reference.ENGINES
    expected = reference.expect(engines, model, cases, **{may: cases[1:2]})
    assert list(expected.refused) == [expected.files[1]]
    assert not expected.files[1].exists()
    with pytest.raises(StageError, match=r"failed on a case: .*division by zero"):
        reference.expect(reference.RUNTIMES, model, cases)


def test_an_optimizer_that_refuses_a_model_is_left_out(divided, monkeypatch):
    ask = reference._ask

    def refusing(engine, model, files):
        if engine == "onnxruntime":
            raise StageError("the optimizer of onnxruntime fails")
        return ask(engine, model, files)

    monkeypatch.setattr(reference, "_ask", refusing)
    model, cases = divided
    expected = reference.expect(reference.choose_engines("onnxruntime", model), model, cases[::2])
    assert expected.engine == "unoptimized onnxruntime"
    assert expected.failed == {"onnxruntime"}
    assert expected.refusals[0].endswith("fails; unoptimized onnxruntime took its place")
