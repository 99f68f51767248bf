import json
import re
import textwrap
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autopipe.compiler.target import cpu
from autopipe.config.verify import Verify
from autopipe.errors import ConfigError, GateError, SetupError, StageError, TargetError
from autopipe.pipeline.events import Event, Warn
from autopipe.stages.verify import VerifyStage
from autopipe.verification import reference
from autopipe.verification.inputs import cases
from tests.support import small_build
from tests.verification.imported_onnx import save_imported

WRONG = {
    "reduction starts from what was there": """
        for i, j in T.grid(4, 8):
            for k in range(8):
                C[i, j] = C[i, j] + A[i, k] * B[k, j]
    """,
    "indices swapped": small_build.DENSE.replace("B[k, j]", "B[j, k]"),
    "a layout that is not converted back": """
        for i, j in T.grid(4, 8):
            C[(j * 4 + i) // 8, (j * 4 + i) % 8] = T.float32(0)
            for k in range(8):
                C[(j * 4 + i) // 8, (j * 4 + i) % 8] = (
                    C[(j * 4 + i) // 8, (j * 4 + i) % 8] + A[i, k] * B[k, j]
                )
    """,
    "last tile of the reduction left out": small_build.DENSE.replace("range(8)", "range(7)"),
    "last row left out": small_build.DENSE.replace("grid(4, 8)", "grid(3, 8)"),
    "one element off by one percent": small_build.DENSE
    + "C[3, 7] = C[3, 7] * T.float32(1.01) + T.float32(0.01)",
}

RIGHT = {
    "as written": small_build.DENSE,
    "reduction backwards": small_build.DENSE.replace("[i, k] * B[k,", "[i, 7 - k] * B[7 - k,"),
    "reduction outside": """
        for i, j in T.grid(4, 8):
            C[i, j] = T.float32(0)
        for k, i, j in T.grid(8, 4, 8):
            C[i, j] = C[i, j] + A[i, k] * B[k, j]
    """,
    "two partial sums": """
        for i, j in T.grid(4, 8):
            C[i, j] = T.float32(0)
            for k in range(4):
                C[i, j] = C[i, j] + (A[i, k] * B[k, j] + A[i, k + 4] * B[k + 4, j])
    """,
    "parallel and vectorized": """
        for i in T.parallel(4):
            for j in T.vectorized(8):
                C[i, j] = T.float32(0)
            for k in range(8):
                for j in T.vectorized(8):
                    C[i, j] = C[i, j] + A[i, k] * B[k, j]
    """,
}


@pytest.fixture(scope="module")
def answers():
    """What references of this process have computed, by model and cases."""
    return {}


@pytest.fixture
def known_answers(monkeypatch, answers):
    """Ask a reference once for the same cases of a model: builds are what differs."""
    ask = reference.expect

    def expect(engines, model, paths, optional=(), doubtful=()):
        asked = (engines, model, *(path.read_bytes() for path in paths))
        if asked not in answers:
            told = ask(engines, model, paths, optional, doubtful)
            assert not told.refused
            answers[asked] = told, [file.read_bytes() for file in told.files]
        told, contents = answers[asked]
        files = tuple(path.with_suffix(".expected") for path in paths)
        for file, content in zip(files, contents, strict=True):
            file.write_bytes(content)
        return replace(told, files=files)

    monkeypatch.setattr(reference, "expect", expect)


def stage(**options):
    return VerifyStage(options=Verify(**options))


def report(ctx):
    return json.loads((ctx.out / "verify.json").read_text())


def test_a_right_build_passes_and_says_how_close_it_is(context):
    events: list[Event] = []
    ctx = context(events)
    assert re.fullmatch(
        r"equal to onnxruntime \S+ on 8 cases, 0\.\d\d% of the allowed error used",
        stage().run(ctx),
    )
    assert {event.event for event in events} == {"progress"}
    found = report(ctx)
    assert [case["name"] for case in found["cases"]] == [
        "random-0", "random-1", "random-2", "zeros", "ones", "large", "small", "negative",
    ]  # fmt: skip
    outputs = [output for case in found["cases"] for output in case["outputs"]]
    assert {output["output"] for output in outputs} == {"scores", "best"}
    assert all(output["failure"] is None for output in outputs)
    assert list(ctx.work.iterdir()) == []


@pytest.mark.usefixtures("known_answers")
@pytest.mark.fault("E1", "E8", "G14")
@pytest.mark.parametrize("kernel", WRONG.values(), ids=WRONG.keys())
def test_a_wrong_kernel_is_caught(context, tmp_path, kernel):
    small_build.save_library(tmp_path, textwrap.dedent(kernel))
    ctx = context(build=tmp_path)
    with pytest.raises(GateError, match=r"output '(scores|best)' is wrong on case"):
        stage().run(ctx)
    assert list(ctx.out.iterdir()) == []


@pytest.mark.usefixtures("known_answers")
@pytest.mark.parametrize("kernel", RIGHT.values(), ids=RIGHT.keys())
def test_a_reordered_kernel_passes(context, tmp_path, kernel):
    small_build.save_library(tmp_path, textwrap.dedent(kernel))
    stage().run(context(build=tmp_path))


@pytest.mark.usefixtures("known_answers")
def test_the_advised_tolerance_does_pass(context, tmp_path):
    wrong = small_build.DENSE.replace("T.float32(0)", "T.float32(0.01)")
    small_build.save_library(tmp_path, wrong)
    with pytest.raises(GateError) as caught:
        stage(reference="onnx").run(context(build=tmp_path))
    message = str(caught.value)
    assert re.search(r"largest error 0\.00\d+ \(.* relative\), allowed rtol 0\.001 and", message)
    [(atol, rtol)] = re.findall(r"verify\.atol: (\S+) or verify\.rtol: (\S+) would pass", message)
    stage(reference="onnx", atol=float(atol)).run(context(build=tmp_path))
    stage(reference="onnx", rtol=float(rtol)).run(context(build=tmp_path))


def test_both_references_agree(context):
    assert stage(reference="onnx").run(context()).startswith("equal to onnx ")
    assert stage(reference="onnxruntime").run(context()).startswith("equal to onnxruntime ")


@pytest.mark.fault("E7", "G14")
def test_a_missing_reference_is_no_verification(context, monkeypatch):
    installed = {"onnx"}
    monkeypatch.setattr(reference, "find_spec", lambda name: True if name in installed else None)
    assert stage().run(context()).startswith("equal to onnx ")
    with pytest.raises(SetupError, match="'onnxruntime' is not installed: pip install onnxruntime"):
        stage(reference="onnxruntime").run(context())
    installed.clear()
    with pytest.raises(SetupError, match="'auto' is not installed"):
        stage().run(context())


@pytest.mark.fault("E7", "G14")
def test_a_reference_that_refuses_the_model_is_no_verification(context, tmp_path, model):
    import onnx

    graph = onnx.load(model / "reference.onnx")
    graph.graph.node[0].op_type = "NoSuchOp"
    save_imported(graph, tmp_path)
    with pytest.raises(StageError, match=r"the reference onnxruntime failed: .*NoSuchOp"):
        stage().run(context(**{"import": tmp_path}))


@pytest.mark.fault("E6")
def test_a_constant_reference_is_reported(context, tmp_path, model):
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(model / "reference.onnx")
    for tensor in graph.graph.initializer:
        empty = np.zeros_like(numpy_helper.to_array(tensor))
        tensor.CopyFrom(numpy_helper.from_array(empty, tensor.name))
    save_imported(graph, tmp_path)
    small_build.save_library(tmp_path, "for i, j in T.grid(4, 8):\n    C[i, j] = T.float32(0)")
    from safetensors.numpy import save_file

    zeros = {name: np.zeros_like(array) for name, array in small_build.weights().items()}
    save_file(zeros, tmp_path / "weights.safetensors")
    events: list[Event] = []
    ctx = context(events, **{"import": tmp_path, "build": tmp_path})
    stage().run(ctx)
    messages = [event.message for event in events if isinstance(event, Warn)]
    assert messages == report(ctx)["warnings"]
    assert messages == [
        f"output {name!r} of the reference is one value everywhere: comparing it proves nothing"
        for name in ("scores", "best")
    ]


@pytest.mark.fault("E2")
def test_nan_fails_on_random_inputs_and_only_skips_edges(context, tmp_path, model):
    import onnx

    graph = onnx.load(model / "reference.onnx")
    graph.graph.node[1].op_type = "Sqrt"
    save_imported(graph, tmp_path)
    with pytest.raises(GateError, match=r"'random-0': .* values of the reference are not finite"):
        stage().run(context(**{"import": tmp_path}))


@pytest.mark.usefixtures("known_answers")
@pytest.mark.fault("E4")
def test_outputs_in_another_order_are_refused(context, tmp_path, library):
    document = json.loads((library / "library.json").read_text())
    document["outputs"].reverse()
    for name in ("lib.so", "weights.safetensors"):
        (tmp_path / name).write_bytes((library / name).read_bytes())
    (tmp_path / "library.json").write_text(json.dumps(document))
    with pytest.raises(GateError, match="output 0 is 'best' in the build, 'scores' in the"):
        stage().run(context(build=tmp_path))


@pytest.mark.fault("E14")
def test_a_build_for_another_processor_is_not_run(context, monkeypatch):
    monkeypatch.setattr(cpu, "list_host_features", lambda: frozenset({"sse3", "ssse3"}))
    told = r"built for x86-64-v2, but this CPU \(.*\) has no popcnt, .*; .* or set `verify: null`"
    with pytest.raises(TargetError, match=told):
        stage().run(context())


def test_real_inputs_are_cases_too(context, tmp_path):
    x = np.full((4, 8), 0.25, np.float32)
    given: dict[str, Any] = {"data/x": x, "ids": np.array([0, 4, 2, 1])}
    np.savez(tmp_path / "real.npz", **given)
    ctx = context()
    samples = {"some/real.npz": tmp_path / "real.npz"}
    made = VerifyStage(options=Verify(cases=1), samples=samples)
    assert " on 7 cases" in made.run(ctx)
    assert [case["name"] for case in report(ctx)["cases"]][-1] == "some/real.npz"
    once = "if A[0, 0] == T.float32(0.25):\n    C[0, 0] = T.float32(9)"
    small_build.save_library(tmp_path, f"{textwrap.dedent(small_build.DENSE)}\n{once}")
    with pytest.raises(GateError, match=r"wrong on case 'some/real\.npz'"):
        made.run(context(build=tmp_path))


def test_real_inputs_that_do_not_fit_are_refused(context, tmp_path):
    np.savez(tmp_path / "real.npz", ids=np.array([0, 9, 2, 1]))
    made = VerifyStage(options=Verify(), samples={"real.npz": tmp_path / "real.npz"})
    with pytest.raises(ConfigError, match=r"real\.npz: input 'data/x' float32 \[4, 8\] is missing"):
        made.run(context())
    given: dict[str, Any] = {"data/x": np.zeros((4, 8), "f"), "ids": np.array([0, 9, 2, 1])}
    np.savez(tmp_path / "real.npz", **given)
    with pytest.raises(ConfigError, match="input 'ids' holds 9, and selects from 5 entries"):
        made.run(context())


def test_the_number_of_cases_and_the_seed_are_used(context, monkeypatch):
    seen = []

    def spy(ports, limits, *, count, seed, sizes):
        seen.append((limits, count, seed))
        return cases(ports, limits, count=count, seed=seed, sizes=sizes)

    monkeypatch.setattr("autopipe.verification.case_source.cases", spy)
    stage(cases=1, seed=9).run(context())
    assert seen == [({"ids": 5}, 1, 9)]
