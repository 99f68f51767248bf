from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import pytest

from autopipe.errors import ConfigError
from autopipe.pipeline.plan import build_plan, require_stages
from autopipe.pipeline.stage import Need
from autopipe.store.artifact import Kind
from tests.pipeline.fakes import Measure, Read, Tune, Upper, demo

SOURCE = Path("model.txt")


class Verify(Upper, frozen=True):
    name: ClassVar[str] = "verify"
    produces: ClassVar[Kind] = Kind.REPORT


class Wrong(Upper, frozen=True):
    needs: ClassVar[Mapping[str, Need]] = {"import": Need(Kind.LIBRARY)}


def test_needs_are_resolved_in_the_order_of_the_flow() -> None:
    plan = build_plan([*demo(SOURCE), Verify(), Measure()])
    assert [(step.name, step.needs) for step in plan] == [
        ("import", ()),
        ("lower", ("import",)),
        ("tune", ("lower",)),
        ("verify", ("import",)),
        ("benchmark", ("tune", "verify")),
    ]


def test_an_optional_input_may_be_missing() -> None:
    assert build_plan([*demo(SOURCE), Measure()])[-1].needs == ("tune",)


@pytest.mark.fault("A9")
def test_a_needed_stage_that_is_switched_off_is_named() -> None:
    message = "stage 'tune' needs stage 'lower', which this pipeline switches off"
    with pytest.raises(ConfigError, match=message):
        build_plan([Read(path=SOURCE), Tune()])


@pytest.mark.fault("A9")
def test_a_stage_can_not_take_what_comes_later() -> None:
    with pytest.raises(ConfigError, match="stage 'lower' needs stage 'import'"):
        build_plan([Upper(), Read(path=SOURCE)])


def test_kinds_must_fit() -> None:
    message = "stage 'lower' takes a library from 'import', which makes a model"
    with pytest.raises(ConfigError, match=message):
        build_plan([Read(path=SOURCE), Wrong()])


def test_until_keeps_what_comes_before() -> None:
    assert [step.name for step in build_plan(demo(SOURCE), until="lower")] == [
        "import",
        "lower",
    ]


@pytest.mark.fault("A9")
def test_an_unknown_stage_is_refused_with_what_is_near() -> None:
    with pytest.raises(ConfigError, match=r"--until lowr: .*did you mean `lower`"):
        build_plan(demo(SOURCE), until="lowr")
    with pytest.raises(ConfigError, match=r"--force xyz: .*its stages are import, lower, tune"):
        require_stages(["lower", "xyz"], ["import", "lower", "tune"], "--force")
