"""The template for a convolution, windows and a product, row by row."""

import json
from dataclasses import replace

from tvm import topi

from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.primitives import make_schedule
from autopipe.schedules.templates import serve
from autopipe.schedules.templates.rolling import ROLLING
from autopipe.schedules.templates.template import dump, replay_setting
from tests.schedules.computed import assert_same, normal
from tests.schedules.tensors import module_of, tensor
from tests.support.table import each_row

ALONE = HardwareParams(vector_bits=256, registers=16, cores=1)
SEVERAL = replace(ALONE, cores=3)


def block(
    size=(9, 11), channels=(5, 24, 7), *, batch=1, kernel=3, stride=1, pad=1, tap=1, residual=False
):
    """A convolution of `tap` x `tap`, a depthwise one, and a product, unless its channels are 0."""
    read, many, few = channels
    x, w, bias = tensor(batch, *size, read), tensor(tap, tap, read, many), tensor(1, 1, 1, many)
    inner = topi.nn.relu(topi.add(topi.nn.conv(x, w, 1, tap // 2, 1, 1, "NHWC", "HWIO"), bias))
    deep = tensor(kernel, kernel, 1, many)
    seen = topi.nn.conv(inner, deep, stride, pad, 1, many, "NHWC", "HWIO")
    y, tensors = topi.clip(seen, 0, 6), [x, w, bias, deep]
    if few:
        last = tensor(1, 1, many, few)
        y, tensors = topi.nn.conv(y, last, 1, 0, 1, 1, "NHWC", "HWIO"), [*tensors, last]
    if residual:
        other = tensor(*y.shape)
        y, tensors = topi.add(y, other), [*tensors, other]
    return [*tensors, y], [1, 3, *([4] if few else [])]


SERVED = {
    "as in a MobileNet": lambda: block(residual=True),
    "stride 2": lambda: block((10, 13), stride=2),
    "windows of 5, several images": lambda: block(batch=2, kernel=5, pad=2),
    "no border": lambda: block((7, 8), pad=0),
    "a wide border": lambda: block((5, 6), pad=2, stride=2),
    "windows higher than the step is long": lambda: block((12, 9), kernel=2, stride=3, pad=0),
    "no product behind": lambda: block(channels=(5, 16, 0)),
    "3x3 before": lambda: block(channels=(3, 12, 4), tap=3),
    "no vector divides the channels": lambda: block(channels=(5, 19, 7), residual=True),
    "one row": lambda: block((1, 20)),
}


@each_row("case", SERVED)
def test_the_rows_together_are_the_image(case):
    module = module_of(*SERVED[case]())
    served = serve.serve(module, SEVERAL)
    assert served is not None
    assert served.template is ROLLING
    assert_same(module, served.schedule.mod, inputs=[normal], rtol=1e-4, of_largest=1e-5)


def test_what_needs_the_whole_image_is_left_to_other_templates():
    """The image is read again behind the windows; it is an output; the product takes 3 x 3."""
    x, w, deep, last = (
        tensor(1, 6, 6, 3),
        tensor(1, 1, 3, 8),
        tensor(3, 3, 1, 8),
        tensor(1, 1, 8, 8),
    )
    inner = topi.nn.conv(x, w, 1, 0, 1, 1, "NHWC", "HWIO")
    seen = topi.nn.conv(inner, deep, 1, 1, 1, 8, "NHWC", "HWIO")
    wide = tensor(3, 3, 8, 8)
    behind = topi.nn.conv(seen, wide, 1, 1, 1, 1, "NHWC", "HWIO")
    product = topi.nn.conv(seen, last, 1, 0, 1, 1, "NHWC", "HWIO")
    for tensors in (
        [x, w, deep, topi.add(seen, inner)],
        [x, w, deep, last, topi.add(product, inner)],
        [x, w, deep, last, topi.add(product, seen)],
        [x, w, deep, inner, seen],
        [x, w, deep, wide, behind],
    ):
        assert (
            ROLLING.match(make_schedule(module_of(tensors, [1, 2, 3][: len(tensors) - 2]))) is None
        )
    served = module_of([x, w, deep, last, product], [1, 2, 3])
    assert ROLLING.match(make_schedule(served)) is not None


def test_all_settings_compute_the_same():
    module = module_of(*block((7, 9), (3, 8, 8), stride=2))
    found = ROLLING.match(make_schedule(module))
    assert found is not None
    settings = list(ROLLING.settings(found, SEVERAL))
    made = [replay_setting(module, ROLLING, dump_of(one), SEVERAL).mod for one in settings[::11]]
    assert len(set(settings)) == len(settings) > 11
    assert_same(module, *made, inputs=[normal], rtol=1e-4, of_largest=1e-5)


def dump_of(knobs):
    return json.loads(dump(ROLLING, knobs))
