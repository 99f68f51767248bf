import pytest

from autopipe.compiler.target import tvm_target
from autopipe.errors import TargetError


def facts(**changes):
    return {"kind": "llvm", "mcpu": "x86-64-v2", "mtriple": None, "num_cores": 2, **changes}


def test_the_facts_are_tvms_attributes():
    target = tvm_target(
        facts(mcpu="cortex-a72", mtriple="aarch64-linux-gnu", mattr=["+dotprod"], num_cores=3)
    )
    assert target.attrs["mcpu"] == "cortex-a72"
    assert target.attrs["mtriple"] == "aarch64-linux-gnu"
    assert list(target.attrs["mattr"]) == ["+dotprod"]
    assert int(target.attrs["num-cores"]) == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mcpu": "znver44"}, r"mcpu: LLVM knows no processor 'znver44' .*; did you mean 'znver4'"),
        ({"mcpu": "qqqqqq"}, r"no processor 'qqqqqq' for [\w-]+$"),
        ({"mcpu": "znver4", "mtriple": "aarch64-linux-gnu"}, "'znver4' for aarch64-linux-gnu"),
        ({"mtriple": "bogus-linux"}, "mtriple: LLVM knows no processor for 'bogus-linux'"),
    ],
)
def test_what_llvm_does_not_know_is_refused(changes, message):
    with pytest.raises(TargetError, match=message):
        tvm_target(facts(**changes))
