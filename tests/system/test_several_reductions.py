"""Primitive functions of several reductions: one task each, from a source to a package."""

import json
from pathlib import Path

import numpy as np
import pytest

from autopipe.api import flow
from autopipe.packaging.open import open_package

FOLDER = Path(__file__).parents[2] / "pipelines" / "tasks"

ATTENTION = """
from tvm.script import tirx as T


@T.prim_func(s_tir=True)
def attention(
    q: T.Buffer((2, 8, 8), "float32"),
    k: T.Buffer((2, 8, 8), "float32"),
    v: T.Buffer((2, 8, 8), "float32"),
    result: T.Buffer((2, 8, 8), "float32"),
):
    scores = T.sblock_alloc_buffer((2, 8, 8))
    largest = T.sblock_alloc_buffer((2, 8))
    powers = T.sblock_alloc_buffer((2, 8, 8))
    total = T.sblock_alloc_buffer((2, 8))
    shares = T.sblock_alloc_buffer((2, 8, 8))
    for b, i, j, d in T.grid(2, 8, 8, 8):
        with T.sblock("scores"):
            v_b, v_i, v_j, v_d = T.axis.remap("SSSR", [b, i, j, d])
            with T.init():
                scores[v_b, v_i, v_j] = T.float32(0)
            scores[v_b, v_i, v_j] = scores[v_b, v_i, v_j] + q[v_b, v_i, v_d] * k[v_b, v_j, v_d]
    for b, i, j in T.grid(2, 8, 8):
        with T.sblock("largest"):
            v_b, v_i, v_j = T.axis.remap("SSR", [b, i, j])
            with T.init():
                largest[v_b, v_i] = T.min_value("float32")
            largest[v_b, v_i] = T.max(largest[v_b, v_i], scores[v_b, v_i, v_j])
    for b, i, j in T.grid(2, 8, 8):
        with T.sblock("powers"):
            v_b, v_i, v_j = T.axis.remap("SSS", [b, i, j])
            powers[v_b, v_i, v_j] = T.exp(scores[v_b, v_i, v_j] - largest[v_b, v_i])
    for b, i, j in T.grid(2, 8, 8):
        with T.sblock("total"):
            v_b, v_i, v_j = T.axis.remap("SSR", [b, i, j])
            with T.init():
                total[v_b, v_i] = T.float32(0)
            total[v_b, v_i] = total[v_b, v_i] + powers[v_b, v_i, v_j]
    for b, i, j in T.grid(2, 8, 8):
        with T.sblock("shares"):
            v_b, v_i, v_j = T.axis.remap("SSS", [b, i, j])
            shares[v_b, v_i, v_j] = powers[v_b, v_i, v_j] / total[v_b, v_i]
    for b, i, d, j in T.grid(2, 8, 8, 8):
        with T.sblock("result"):
            v_b, v_i, v_d, v_j = T.axis.remap("SSSR", [b, i, d, j])
            with T.init():
                result[v_b, v_i, v_d] = T.float32(0)
            result[v_b, v_i, v_d] = (
                result[v_b, v_i, v_d] + shares[v_b, v_i, v_j] * v[v_b, v_j, v_d]
            )
"""

NORMED = """
from tvm.script import tirx as T


@T.prim_func(s_tir=True)
def normed(
    x: T.Buffer((16, 32), "float32"),
    scale: T.Buffer((32,), "float32"),
    weight: T.Buffer((32, 24), "float32"),
    result: T.Buffer((16, 24), "float32"),
):
    T.func_attr({"num_input": 1})
    squares = T.sblock_alloc_buffer((16,))
    norm = T.sblock_alloc_buffer((16, 32))
    for i, j in T.grid(16, 32):
        with T.sblock("squares"):
            v_i, v_j = T.axis.remap("SR", [i, j])
            with T.init():
                squares[v_i] = T.float32(0)
            squares[v_i] = squares[v_i] + x[v_i, v_j] * x[v_i, v_j]
    for i, j in T.grid(16, 32):
        with T.sblock("norm"):
            v_i, v_j = T.axis.remap("SS", [i, j])
            norm[v_i, v_j] = (
                x[v_i, v_j] * T.rsqrt(squares[v_i] / T.float32(32) + T.float32(1e-5)) * scale[v_j]
            )
    for i, j, k in T.grid(16, 24, 32):
        with T.sblock("result"):
            v_i, v_j, v_k = T.axis.remap("SSR", [i, j, k])
            with T.init():
                result[v_i, v_j] = T.float32(0)
            result[v_i, v_j] = result[v_i, v_j] + norm[v_i, v_k] * weight[v_k, v_j]
"""
PIPELINE = """
version: 1
name: {name}
model: {{format: tvmscript, path: {name}.py{weights}}}
tuning:
  budget: {{trials: 4}}
  measure: {{build_timeout: 5s, repeat: 1, min_repeat: 1ms}}
tasks: {{heuristics: {{min_flops: 0}}}}
schedules:
  rules: [{{engines: [ansor], select: first}}]
  fallback: [{fallback}]
verify: {{cases: 1}}
benchmark: null
"""


def attention(inputs, weights):
    scores = inputs["q"] @ inputs["k"].swapaxes(1, 2)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True) @ inputs["v"]


def normed(inputs, weights):
    x = inputs["x"]
    roots = np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)
    return x / roots * weights["scale"] @ weights["weight"]


CASES = {
    "attention": (ATTENTION, "", attention, 4),
    "normed": (NORMED, ", weights: {seed: 3}", normed, 2),
}


def run(folder, name, fallback, *overrides):
    """Return the artifacts of a case, in the store of the folder."""
    source, weights, _, _ = CASES[name]
    (folder / f"{name}.py").write_text(source)
    text = PIPELINE.format(name=name, weights=weights, fallback=fallback)
    (folder / f"{name}.yaml").write_text(text)
    return flow.run(
        folder / f"{name}.yaml", store=folder / "store", output=folder / "dist",
        overrides=overrides,
    )  # fmt: skip


def engines(artifacts):
    tasks = json.loads((artifacts["build"].path / "library.json").read_text())["tasks"]
    assert all(task["checked"] and not task["rejected"] for task in tasks)
    return [task["engine"] for task in tasks]


@pytest.mark.parametrize("name", [pytest.param("attention", marks=pytest.mark.slow), "normed"])
def test_one_function_of_several_reductions_is_one_task_and_computes_what_it_says(tmp_path, name):
    *_, expected, reductions = CASES[name]
    artifacts = run(tmp_path, name, "static", "tuning=null")
    assert engines(artifacts) == ["static"]
    [task] = json.loads((artifacts["tasks"].path / "tasks.json").read_text())
    assert task["reductions"] == reductions
    assert (
        json.loads((artifacts["verify"].path / "verify.json").read_text())["reference"] == "plain"
    )
    model = open_package(tmp_path / "dist" / f"{name}.tar")
    random = np.random.default_rng(0)
    ports = model.signature.inputs
    inputs = {port.name: random.standard_normal(port.shape, "f") for port in ports}
    from safetensors.numpy import load_file

    weights = load_file(artifacts["import"].path / "weights.safetensors")
    [found] = model(inputs).values()
    np.testing.assert_allclose(found, expected(inputs, weights), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["attention", pytest.param("normed", marks=pytest.mark.slow)])
def test_sketch_search_tunes_it_and_the_record_builds_it(tmp_path, name):
    artifacts = run(tmp_path, name, "default")
    [task] = json.loads((artifacts["tune"].path / "tuning.json").read_text())["tasks"]
    [search] = [each for each in task["contenders"] if each["engine"] == "ansor"]
    assert search["trials"] > search["failed"]
    assert engines(artifacts) == ["ansor"]


@pytest.mark.parametrize(("name", "reductions"), [("rfc-fused", [2]), ("rfc-halves", [1, 1])])
def test_the_example_of_the_rfc_is_one_task_and_its_halves_are_two(tmp_path, name, reductions):
    tasks = flow.list_tasks(FOLDER / f"{name}.yaml", store=tmp_path)
    assert [task.reductions for task in tasks] == reductions
    assert all(task.dropped is None for task in tasks)


@pytest.mark.slow
def test_the_example_of_the_rfc_is_tuned_built_and_verified(tmp_path):
    artifacts = flow.run(
        FOLDER / "rfc-fused.yaml", store=tmp_path / "store", output=tmp_path,
        overrides=["tuning.budget.trials=8"],
    )  # fmt: skip
    assert engines(artifacts)[0] in {"ansor", "static"}
    assert (tmp_path / "rfc-fused.tar").exists()
