"""Each artifact that a remote may bring is looked at before it is taken."""

from autopipe.api.shapes import SHAPES
from autopipe.stages import STAGES


def test_each_stage_whose_result_is_used_again_has_a_shape() -> None:
    assert list(SHAPES) == [stage.name for stage in STAGES if stage.cached], (
        "autopipe/api/shapes.py: one shape for each cached stage, in the order of STAGES"
    )
