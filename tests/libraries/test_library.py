"""What a library declares, and what is said where it is missing."""

import os

import pytest

from autopipe import libraries
from autopipe.config.load import load
from autopipe.config.target import Target
from autopipe.environment.environment import Host
from autopipe.environment.facet import Facet
from autopipe.errors import ConfigError, SetupError
from autopipe.libraries import (
    LIBRARIES,
    check_libraries,
    find_library,
    limit_library_threads,
    list_versions,
    require_library,
)
from autopipe.libraries.cublas import CUBLAS
from autopipe.libraries.library import Library, LibraryFile, Pattern
from autopipe.libraries.openblas import OPENBLAS
from autopipe.store.store import open_store
from tests.support.table import each_row

PIPELINE = """version: 1
name: p
model: {path: m.onnx}
schedules:
  rules:
  - implementations: [NAME]
"""


@pytest.fixture
def missing(monkeypatch):
    """OpenBLAS as it is where nobody installed it."""
    absent = OPENBLAS._replace(distribution="scipy-openblas-that-nobody-has")
    for place in ("autopipe.libraries", "autopipe.config.schedules"):
        monkeypatch.setattr(f"{place}.LIBRARIES", (absent, CUBLAS))
    return absent


@each_row(
    "pattern, fits",
    [
        (Pattern("conv"), True),
        (Pattern("c*v"), True),
        (Pattern("conv2"), False),
        (Pattern("conv", attributes={"groups": 1}), True),
        (Pattern("conv", attributes={"groups": 2}), False),
        (Pattern("conv", attributes={"strides": [1, 1]}), True),
        (Pattern("conv", attributes={"unknown": 1}), False),
        (Pattern("conv", layout="NHWC"), True),
        (Pattern("conv", layout="NCHW"), False),
    ],
)
def test_a_pattern_looks_at_name_attributes_and_layout(pattern, fits):
    assert pattern.names("conv", {"groups": 1, "strides": [1, 1]}, "NHWC") is fits


@pytest.mark.parametrize(
    ("shapes", "fits"),
    [
        ({0: (1, 4), 1: (1, 1, 8, 8)}, True),
        ({1: (1, 3, 8, 8)}, False),
        ({1: (1, 1, 8)}, False),
        ({0: (1, 1, 8, 8)}, False),
    ],
)
def test_a_pattern_looks_at_the_shapes_of_arguments(shapes, fits):
    assert Pattern("conv", shapes={1: (1, 1, None, None)}).holds(shapes) is fits


def test_every_library_has_its_own_name_and_files():
    assert len({library.name for library in LIBRARIES}) == len(LIBRARIES)
    assert len(set(libraries.list_shipped_files())) == len(libraries.list_shipped_files())
    assert all(library.takes for library in LIBRARIES)


def test_openblas_is_found_with_its_licence():
    found = OPENBLAS.located()
    assert list(found) == ["libscipy_openblas.so", "libscipy_openblas.LICENSE"]
    assert found["libscipy_openblas.so"].read_bytes()[:4] == b"\x7fELF"
    assert "The OpenBLAS Project" in found["libscipy_openblas.LICENSE"].read_text()
    assert check_libraries() == f"openblas {OPENBLAS.version()}"


def test_the_version_is_a_fact_of_its_own(tmp_path):
    with open_store(tmp_path / "store") as store:
        host = Host(Target(), store, lambda: pytest.fail("TVM was asked"))
        known = host.known({Facet.LIBRARIES})
    assert known == {Facet.LIBRARIES: {"openblas": OPENBLAS.version()}}


def test_a_damaged_installation_is_one_line():
    damaged = OPENBLAS._replace(files=(LibraryFile("lib/nowhere.so", "nowhere.so"),))
    with pytest.raises(SetupError, match=r"has no lib/nowhere.so: pip install --force-reinstall"):
        damaged.located()


def test_a_missing_library_says_what_to_install(missing):
    assert "openblas" not in list_versions()
    assert check_libraries() == "openblas is not installed: pip install 'autopipe[openblas]'"
    with pytest.raises(SetupError, match=r"pip install 'autopipe\[openblas\]'"):
        require_library("openblas")
    with pytest.raises(SetupError, match="openblas is not installed"):
        missing.located()


def test_an_unknown_library_is_an_error():
    assert find_library("mkl") is None
    with pytest.raises(SetupError, match="there is no library 'mkl'"):
        require_library("mkl")


def rule(tmp_path, name):
    file = tmp_path / "p.yaml"
    file.write_text(PIPELINE.replace("NAME", name))
    return load(file)


def test_a_rule_may_name_an_installed_library(tmp_path):
    (found,) = rule(tmp_path, "open*").schedules.rules
    assert found.implementations == ("open*",)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("openblas", r"openblas is not installed: pip install 'autopipe\[openblas\]'"),
        ("cublas", "cublas is not part of this TVM"),
        ("openbls", "'openbls' is not known; did you mean `openblas`"),
    ],
)
def test_a_rule_that_names_a_missing_library_is_told_so(tmp_path, missing, name, said):
    with pytest.raises(ConfigError, match=said):
        rule(tmp_path, name)


def test_a_glob_that_fits_others_too_does_not_need_the_library(tmp_path, missing):
    (found,) = rule(tmp_path, "'*'").schedules.rules
    assert found.implementations == ("*",)


def test_libraries_are_kept_from_starting_threads_while_they_are_loaded(monkeypatch):
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "7")
    with limit_library_threads():
        assert os.environ["OPENBLAS_NUM_THREADS"] == "1"
    assert os.environ["OPENBLAS_NUM_THREADS"] == "7"
    monkeypatch.delenv("OPENBLAS_NUM_THREADS")
    with limit_library_threads():
        pass
    assert "OPENBLAS_NUM_THREADS" not in os.environ


def test_a_library_of_tvm_has_no_version_of_its_own():
    assert isinstance(CUBLAS, Library)
    assert CUBLAS.version() is None
    assert CUBLAS.missing() == "cublas is not part of this TVM"
