"""Whole runs up to a stage share one process with TVM."""

from tests.support.kept import one_process  # noqa: F401 -- a fixture
