from autopipe.config.match import Match
from autopipe.tasks.matching import is_match
from autopipe.tasks.op_info import Op, OpInfo
from autopipe.tasks.tensor import Tensor
from tests.schedules.tasks import task
from tests.support.table import each_row

IMAGE = Tensor(shape=(1, 56, 56, 64), dtype="float32")
CLASSES = Tensor(shape=(1, 10), dtype="int64")
CONV = {"strides": [1, 1], "groups": 1, "data_layout": "NHWC"}


def conv():
    info = OpInfo(kind="opaque", ops=(Op(name="add"), Op(name="nn.conv2d", attributes=CONV)))
    return task().model_copy(update={"info": info, "inputs": (IMAGE,), "outputs": (CLASSES,)})


@each_row(
    "match, fits",
    [
        ({}, True),
        ({"kind": "opaque"}, True),
        ({"kind": "injective"}, False),
        ({"attributes": {"strides": (1, 1), "groups": 1}}, True),
        ({"attributes": {"strides": (2, 2), "groups": 1}}, False),
        ({"attributes": {"dilation": (1, 1)}}, False),
        ({"op": "add", "attributes": {"groups": 1}}, False),
        ({"op": "nn.*", "layout": "NHWC"}, True),
        ({"op": "add", "layout": "NHWC"}, False),
        ({"layout": "NCHW"}, False),
        ({"shape": (1, "*", "*", 64)}, True),
        ({"shape": (1, 10)}, True),
        ({"shape": (1, "*", "*", 32)}, False),
        ({"shape": ("*", "*", "*")}, False),
        ({"shape": (1, "56..", "..56", "64..64")}, True),
        ({"shape": (1, "57..", "*", "*")}, False),
        ({"shape": (1, "..55", "*", "*")}, False),
        ({"dtype": "int64"}, True),
        ({"dtype": "int8"}, False),
        ({"share": 0.2}, True),
        ({"share": 0.21}, False),
        ({"op": "nn.conv2d", "dtype": "float32", "share": 0.5}, False),
    ],
)
def test_all_that_a_match_gives_has_to_hold(match, fits):
    assert is_match(Match(**match), conv(), 0.2) == fits


def test_a_symbolic_size_fits_what_is_left_open_only():
    dynamic = task().model_copy(update={"inputs": (Tensor(shape=(-1,), dtype="float32"),)})
    assert is_match(Match(shape=("*",)), dynamic, 0.0)
    assert not is_match(Match(shape=("0..",)), dynamic, 0.0)
