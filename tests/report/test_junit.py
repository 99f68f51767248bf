from xml.etree import ElementTree as ET

import pytest

from autopipe.report.junit import format_junit
from tests.report.names import NAMES
from tests.report.reports import full
from tests.support.table import each_row


def cases(report):
    root = ET.fromstring(format_junit(report))
    return {
        (suite.get("name"), case.get("name")): [(inner.tag, inner.text) for inner in case]
        for suite in root
        for case in suite
    }


def test_stages_verified_cases_and_gates_are_test_cases():
    found = cases(full())
    assert found == {
        ("demo.stages", "import"): [("system-out", "cached")],
        ("demo.stages", "build"): [("system-out", "demo")],
        ("demo.stages", "benchmark"): [("system-out", "finished")],
        ("demo.stages", "package"): [("skipped", "not run")],
        ("demo.verify", "demo"): [],
        ("demo.verify", "wrong"): [("failure", "demo: demo")],
        ("demo.verify", "large"): [("skipped", "the reference is not finite on it")],
        ("demo.gates", "gates.regression"): [("system-out", "as fast")],
        ("demo.gates", "gates.a"): [("failure", "demo")],
        ("demo.gates", "gates.b"): [("skipped", "inconclusive: demo")],
    }


def test_counts_and_times_are_there_for_those_who_sum_up():
    root = ET.fromstring(format_junit(full()))
    wanted = {"tests": "10", "failures": "2", "errors": "0", "skipped": "3", "time": "41.250"}
    assert wanted.items() <= root.attrib.items()
    (build,) = root.findall(".//testcase[@name='build']")
    assert (build.get("time"), build.get("classname")) == ("1.500", "demo.stages")
    assert root[0].attrib == {
        "name": "demo.stages", "tests": "4", "failures": "0", "errors": "0", "skipped": "1",
        "time": "3.500",
    }  # fmt: skip


def test_what_was_not_timed_has_no_time_and_its_suite_the_stages():
    stages = tuple(stage.model_copy(update={"stage": "verify"}) for stage in full().stages[1:2])
    root = ET.fromstring(format_junit(full(stages=stages)))
    times = {suite.get("name"): suite.get("time") for suite in root}
    assert times == {"demo.stages": "1.500", "demo.verify": "1.500", "demo.gates": None}
    for suite in root[1:]:
        assert {case.get("time") for case in suite} == {None}


def test_a_verified_case_has_the_time_that_it_took_in_this_run():
    given = full()
    first, second, third = given.verification.cases
    cases = (first.model_copy(update={"seconds": 0.25}), second, third)
    verified = given.verification.model_copy(update={"cases": cases})
    ran = given.stages[1].model_copy(update={"stage": "verify"})
    cached = given.stages[0].model_copy(update={"stage": "verify"})
    for stage, wanted in ((ran, ["0.250", None, None]), (cached, [None] * 3)):
        root = ET.fromstring(format_junit(full(stages=(stage,), verification=verified)))
        (suite,) = (suite for suite in root if suite.get("name") == "demo.verify")
        assert [case.get("time") for case in suite] == wanted


@pytest.mark.parametrize(("exit_code", "tag"), [(1, "failure"), (4, "error"), (130, "error")])
def test_a_check_that_says_no_fails_and_all_else_is_an_error(exit_code, tag):
    stages = list(full().stages)
    stages[1] = stages[1].model_copy(update={"state": "failed", "error": "oh\nno", "seconds": 7.0})
    report = full(stages=tuple(stages), exit_code=exit_code, error="oh\nno", outcome="failed")
    found = cases(report)
    assert found["demo.stages", "build"] == [(tag, "oh\nno")]
    (build,) = ET.fromstring(format_junit(report)).findall(".//testcase[@name='build']")
    assert build.get("time") == "7.000"
    assert ("demo.stages", "run") not in found


def test_what_fails_before_any_stage_is_a_test_case_too():
    report = full(stages=(), verification=None, gates=(), exit_code=2, error="p.yaml:1:1: no")
    assert cases(report.model_copy(update={"pipeline": None})) == {
        ("pipeline.stages", "run"): [("error", "p.yaml:1:1: no")]
    }


@pytest.mark.fault("E12")
@each_row("name", NAMES)
def test_any_name_is_text_in_well_formed_xml(name):
    text = format_junit(full(name))
    text.encode()
    root = ET.fromstring(text)
    assert {element.tag for element in root.iter()} == {
        "testsuites", "testsuite", "testcase", "failure", "skipped", "system-out",
    }  # fmt: skip
    assert [len(suite) for suite in root] == [4, 3, 3]
    if name.isprintable():
        assert root.get("name") == name or not name
