"""Random nodes of every operator, compared with onnxruntime and with ONNX's own evaluator."""

from collections import Counter

import pytest

from tests.compiler.frontends.nodes.node_trials import ALL, try_node
from tests.support.seeds import fuzz_seeds

MANY = fuzz_seeds(0, 100)
"""Of the nodes that the slow test draws of each operator."""


def prove(operators, seeds, folder):
    """Try nodes; fail with a line for each that is wrong, refused or raises; return the counts."""
    counts, failed = Counter[str](), []
    for op in operators:
        for seed in seeds:
            try:
                trial = try_node(op, seed, folder)
                verdict, told = trial.verdict, f"{trial.reason} of {trial.node}"
            except Exception as error:  # noqa: BLE001 - all are to be named
                verdict, told = "raised", repr(error)
            counts[verdict] += 1
            if verdict not in {"right", "unknown"}:
                failed.append(f"{op} {seed} {verdict}: {told}"[:600])
    assert not failed, "\n".join(failed)
    return counts


def test_random_nodes_compute_what_a_reference_does(tmp_path):
    counts = prove(sorted(ALL)[::3], [7], tmp_path)
    assert counts["right"] > 9 * counts["unknown"]


@pytest.mark.slow
@pytest.mark.parametrize("op", sorted(ALL))
def test_many_random_nodes_compute_what_a_reference_does(op, tmp_path):
    counts = prove([op], MANY, tmp_path)
    assert counts["unknown"] <= counts["right"] + 3  # of few nodes, most may be unknown
