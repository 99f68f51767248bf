"""Legalization: ops that TVM's passes by target rewrite."""

import inspect
import re

from tvm.relax.backend import dispatch_sampling, dispatch_sort_scan

from autopipe.compiler.passes.legalize import DISPATCHED


def test_all_ops_with_implementations_by_target_are_listed():
    sources = map(inspect.getsource, (dispatch_sampling, dispatch_sort_scan))
    names = {name for text in sources for name in re.findall(r'"(relax\.\w+)"', text)}
    assert names == DISPATCHED
