"""What traces do, in words."""

import json

from autopipe.traces.wording import describe_steps, is_refusal, is_trace
from tests.traces.hostile import BEGINNING, EXAMPLES, TEXTS, trace


def test_a_trace_is_told_in_words():
    end = [
        ["Split", ["l1", "v4", "v5"], [True, False], ["l6", "l7"]],
        ["Reorder", ["l6", "l2", "l7"], [], []],
        ["Fuse", ["l6", "l2"], [1], ["l8"]],
        ["Parallel", ["l8"], [], []],
        ["SampleCategorical", [], [[0, 16], [0.5, 0.5]], ["v9"]],
        ["Annotate", ["l8", "v9"], ["pragma_auto_unroll_max_step"], []],
        ["CacheRead", ["b0", []], [1, "global"], ["b10"]],
        ["ComputeAt", ["b10", "l8"], [1, -1], []],
        ["Annotate", ["b10", True], ["meta_schedule.layout_rewrite_preproc"], []],
        ["TransformLayout", *EXAMPLES["TransformLayout"][:3]],
    ]
    text = json.dumps([[*BEGINNING, *end], [[2, [4, 2]], [7, 1]]])
    assert describe_steps(text) == (
        "split C.0 into 4 x 2",
        "reorder C.0.0, C.1, C.0.1",
        "fuse C.0.0, C.1",
        "parallel C.0.0+C.1",
        "annotate C.0.0+C.1: pragma_auto_unroll_max_step = 16",
        "C: read buffer 1 through global",
        "compute read cache of C at C.0.0+C.1",
        "annotate read cache of C: meta_schedule.layout_rewrite_preproc = true",
        "C: layout of written buffer 0: (i) -> (i)",
    )


def test_every_kind_can_be_told():
    for kind, example in EXAMPLES.items():
        lines = describe_steps(trace(kind, *example))
        assert not is_refusal(lines)
        assert all(line.isprintable() and "{" not in line for line in lines), lines


def test_a_trace_that_would_be_refused_says_so():
    lines = describe_steps(trace("Annotate", ["l1", TEXTS["LLVM IR"]], ["pragma_import_llvm"], []))
    assert lines == (
        'would be refused: instruction 4, Annotate: key may not be "pragma_import_llvm"',
    )
    assert is_refusal(lines)
    assert not is_refusal(())


def test_knobs_are_no_trace():
    assert is_trace("[[], []]")
    assert is_trace("what is this")
    assert not is_trace('{"template": "t"}')
