"""The pages say what the marks of the tests say."""

import textwrap

import pytest

from tests.faults.marks import proofs
from tests.faults.pages import pages
from tests.faults.table import read


def test_the_pages_are_current():
    """If this fails, marks or cases changed: run `make gen`."""
    for path, text in pages():
        assert path.read_text("utf-8") == text, f"{path.name}: run make gen"


def test_every_mark_names_a_case():
    known = {case.id for each in read() for case in each.cases}
    assert {case: tests for case, tests in proofs().items() if case not in known} == {}


def test_every_case_is_proven_or_not_taken():
    """Each by a test of the default run: what is slow may prove more, and not alone."""
    found = {case: [test for test in tests if " " not in test] for case, tests in proofs().items()}
    cases = [case for each in read() for case in each.cases if case.promise]
    assert [case.id for case in cases if not found.get(case.id)] == []


@pytest.fixture
def marked(tmp_path):
    (tmp_path / "tests").mkdir()

    def marked(source):
        (tmp_path / "tests" / "test_x.py").write_text(textwrap.dedent(source))
        return proofs(tmp_path)

    return marked


def test_marks_are_found_wherever_they_are(marked):
    found = marked("""
        import pytest

        @pytest.mark.fault("A1", "A2")
        @pytest.mark.slow
        def test_a(): ...

        @pytest.mark.parametrize("x", [1, pytest.param(2, marks=pytest.mark.fault("A3"))])
        def test_b(x): ...

        @pytest.mark.fault("A3")
        class TestC:
            def test_d(self): ...

        def test_nothing(): ...
    """)
    assert found == {
        "A1": ["tests/test_x.py::test_a (slow)"],
        "A2": ["tests/test_x.py::test_a (slow)"],
        "A3": ["tests/test_x.py::test_b", "tests/test_x.py::TestC::test_d"],
    }


def test_a_module_may_be_marked(marked):
    found = marked("""
        import pytest
        pytestmark = pytest.mark.fault("A1")
        class Fake: ...
        def test_a(): ...
    """)
    assert found == {"A1": ["tests/test_x.py::test_a"]}


@pytest.mark.parametrize(
    "source",
    [
        "@pytest.mark.fault('A1')\ndef helper(): ...",
        "LIST = [pytest.param(1, marks=pytest.mark.fault('A1'))]\ndef test_a(): ...",
        "@pytest.mark.fault(CASE)\ndef test_a(): ...",
    ],
)
def test_a_mark_that_would_not_count_is_an_error(marked, source):
    with pytest.raises(ValueError, match=r"a fault is marked|as text"):
        marked(source)
