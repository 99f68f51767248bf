"""The filters from the command line's side: what is told, and how it ends."""

from pathlib import Path

import pytest

from autopipe.api import flow
from autopipe.errors import ConfigError
from autopipe.pipeline.events import Event, Warn

FILE = Path(__file__).parents[2] / "pipelines" / "mlp.yaml"


@pytest.fixture(scope="module")
def select(tmp_path_factory):
    """Extract the tasks of a small model under overrides; return the kept names and warnings."""
    store = tmp_path_factory.mktemp("store")

    def select(*overrides):
        heard: list[Event] = []
        tasks = flow.list_tasks(FILE, overrides=overrides, store=store, emit=heard.append)
        warned = [event.message for event in heard if isinstance(event, Warn)]
        return [task.info.names[0] for task in tasks if task.dropped is None], warned

    return select


def test_a_pattern_in_vain_is_a_warning(select):
    kept, warned = select("tasks.exclude=[nn.softmaxx, {op: matmul, shape: [8, 10]}]")
    assert kept == ["matmul", "matmul"]
    assert warned == ["tasks.exclude.0: nn.softmaxx matches no task; did you mean nn.softmax?"]


def test_an_empty_selection_is_an_error_that_says_what_would_be_right(select):
    with pytest.raises(ConfigError) as caught:
        select("tasks.include=[nn.conv2d, {op: matmul, dtype: int8}]")
    assert caught.value.exit_code == 2
    assert str(caught.value) == (
        "tasks: none of 4 is left: not included drops 4 (another pattern in tasks.include keeps "
        "them); or accept it with tasks.allow_empty: true; tasks.include.0: nn.conv2d matches no "
        "task; the tasks have add, matmul, nn.relu, nn.softmax; tasks.include.1: {op: matmul, "
        "dtype: int8} matches no task; none with matmul fits the rest"
    )


@pytest.mark.parametrize("accepted", ["tasks.allow_empty=true", "tuning=null"])
@pytest.mark.parametrize("dropping", ["heuristics={min_flops: 1e12}", "exclude=['*']"])
def test_an_empty_selection_may_be_accepted_and_is_where_nothing_is_tuned(
    select, accepted, dropping
):
    kept, _ = select(f"tasks.{dropping}", accepted)
    assert kept == []
