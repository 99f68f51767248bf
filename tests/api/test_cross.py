"""What is said of a target of another kind of machine, before anything is compiled."""

from pathlib import Path

import pytest

from autopipe.api import cross, flow
from autopipe.api.builds import check_file
from autopipe.config.load import load
from autopipe.errors import ConfigError, SetupError
from autopipe.pipeline.events import Event
from autopipe.pipeline.forecast import Outlook
from autopipe.pipeline.plan import build_plan
from autopipe.stages import stages_of

FOREIGN = """
version: 1
name: mlp
model: {path: mlp.onnx, inputs: {input: {shape: [8, 128], dtype: float32}}}
target: {mcpu: z13, mtriple: s390x-unknown-linux-gnu}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mlp.yaml"
    path.write_text(FOREIGN)
    (tmp_path / "mlp.onnx").touch()
    return path


@pytest.mark.fault("A17")
def test_a_foreign_target_without_a_linker_is_refused_in_a_line(file: Path) -> None:
    for use in (check_file, flow.plan, lambda path: flow.run(path, store=path.parent / "store")):
        with pytest.raises(ConfigError) as caught:
            use(file)
        assert str(caught.value).startswith("target.linker: null, but the target s390x-")
        assert str(caught.value).endswith("such as s390x-linux-gnu-gcc")
    assert not (file.parent / "store").exists(), "nothing was begun"


def test_with_a_linker_it_is_valid(file: Path) -> None:
    file.write_text(FOREIGN.replace("linux-gnu}", "linux-gnu, linker: s390x-linux-gnu-gcc}"))
    check_file(file)


@pytest.mark.fault("A17")
def test_stages_that_run_code_are_refused_where_they_would_run(file: Path) -> None:
    plan = build_plan(stages_of(load(file), file.parent))
    names = [step.name for step in plan]
    looks = [Outlook(name, "run", (), None, None) for name in names if name != "tune"]
    cached = Outlook("tune", "cached", (), "key", None)
    with pytest.raises(ConfigError) as caught:
        cross.check_stages(plan, [*looks, cached], "s390x-linux-gnu")
    verify, benchmark = str(caught.value).splitlines()
    assert verify.startswith("verify: code for s390x cannot be run on this machine")
    assert benchmark.endswith("write `benchmark: null`")
    done = [Outlook(name, "cached", (), "key", None) for name in names]
    cross.check_stages(plan, done, "s390x-linux-gnu")


def test_a_stage_that_devices_measure_for_runs(file: Path) -> None:
    rpc = 'tuning: {measure: {runner: rpc, key: board, tracker: "127.0.0.1:9190"}}'
    file.write_text(FOREIGN.replace("-gnu}", "-gnu, num_cores: 2}") + rpc)
    plan = build_plan(stages_of(load(file), file.parent))
    cross.check_stages(plan, [Outlook("tune", "run", (), None, None)], "s390x-linux-gnu")


@pytest.mark.fault("D19")
@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        (None, "there is no C++ compiler on the PATH"),
        ("nowhere-g++", "nowhere-g++, which CXX or CC names, is"),
    ],
)
def test_a_run_without_a_compiler_ends_before_it_begins(
    file: Path, chosen: str | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(file.parent))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.delenv("CXX", raising=False)
    if chosen is not None:
        monkeypatch.setenv("CXX", chosen)
    file.write_text(FOREIGN.replace("target: {mcpu: z13, mtriple: s390x-unknown-linux-gnu}", ""))
    events: list[Event] = []
    with pytest.raises(SetupError) as caught:
        flow.run(file, store=file.parent / "store", emit=events.append)
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)
    assert [event.event for event in events] == ["run_finished"]
