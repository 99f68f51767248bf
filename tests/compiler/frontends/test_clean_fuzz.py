"""Clean-up keeps what random graphs compute: bit for bit, where only sums and scales may round."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from autopipe.compiler.frontends.onnx.reading import gate
from autopipe.compiler.frontends.onnx.reading.weights import attach_weights
from autopipe.compiler.frontends.onnx.rewriting.cleanup import clean_model
from autopipe.errors import ModelError
from tests.compiler.frontends.random_onnx import RandomGraph
from tests.support.seeds import fuzz_seeds, split_seeds

_REFUSAL = "no output depends on an input"


def compare(seed):
    """Compare a random graph with what clean-up makes of it; return how closely, or "refused"."""
    graph = RandomGraph(seed)
    if all(node.op_type == "Constant" for node in graph.nodes):
        return "refused"
    made = graph.to_model()
    try:
        vetted = gate.vet_model(made.SerializeToString(), Path("m.onnx"), {})
    except ModelError as error:
        if _REFUSAL not in str(error):
            raise
        return "refused"
    weights = {name: numpy_helper.to_array(stored) for name, stored in vetted.weights.items()}
    cleaned, kept = clean_model(vetted.model, weights)
    attach_weights(cleaned.graph, kept)
    feeds = {name: graph.values[name] for name in graph.inputs}
    with np.errstate(all="ignore"):
        expected = ReferenceEvaluator(made).run(None, feeds)
        results = ReferenceEvaluator(cleaned).run(None, feeds)
    for before, after in zip(expected, results, strict=True):
        assert before.dtype == after.dtype
        assert before.shape == after.shape
        if graph.is_rounded:
            _assert_close(after, before)
        else:
            _assert_same(after, before)
    return "rounded" if graph.is_rounded else "equal"


def _assert_same(after, before):
    """Fail unless all bits agree; one NaN is as good as another."""
    np.testing.assert_array_equal(after, before)
    if before.dtype.kind == "f":
        is_number = ~np.isnan(before)
        np.testing.assert_array_equal(np.signbit(after)[is_number], np.signbit(before)[is_number])


def _assert_close(after, before):
    if before.dtype.kind != "f":
        np.testing.assert_array_equal(after, before)
    elif before.size:
        finite = before[np.isfinite(before)]
        np.testing.assert_allclose(after, before, 1e-7, 1e-9 * np.abs(finite).max(initial=1))


def test_random_graphs_compute_the_same():
    closely = Counter(compare(seed) for seed in range(120))
    assert closely["equal"] > 30
    assert closely["rounded"] > 30


@pytest.mark.slow
@pytest.mark.parametrize("seeds", split_seeds(fuzz_seeds(1000, 9000), 1000), ids=str)
def test_more_random_graphs_compute_the_same(seeds):
    closely = Counter(compare(seed) for seed in seeds)
    assert closely["refused"] < 0.3 * len(seeds)
