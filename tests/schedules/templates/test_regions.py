"""RoiAlign: plain loops and template compute what onnxruntime does, for any number of regions."""

import numpy as np
import onnxruntime
import tvm
from onnx import TensorProto, helper
from tvm import te, tirx

from autopipe.compiler.dynamic_sizes import kernel_sizes
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import as_int64
from autopipe.compiler.roi_align import RegionForm, build_regions, parse_form
from autopipe.compiler.target.target import make_host_target
from autopipe.measure.check import checked
from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.primitives import make_schedule
from autopipe.schedules.templates.regions import REGIONS
from autopipe.schedules.templates.serve import serve
from tests.support.table import each_row

TARGET = make_host_target(2)
HARDWARE = HardwareParams.of(TARGET)
HEIGHT, WIDTH, CHANNELS = 6, 8, 13
MEAN = RegionForm(mode="avg", samples=2, scale=0.25, half_pixel=True, cells=(3, 2))


def form(**changed):
    return MEAN.model_copy(update=changed)


def function(of, count, dtype="float32", attribute=None):
    """Return the function of regions of two images."""
    shape = [as_int64(size) for size in (2, HEIGHT, WIDTH, CHANNELS)]
    count = as_int64(count)
    data, boxes = te.placeholder(shape, dtype, "data"), te.placeholder((count, as_int64(4)), dtype)
    images = te.placeholder((count,), "int64")
    made = te.create_prim_func(
        [data, boxes, images, build_regions(of, data, boxes, images)], index_dtype_override="int64"
    )
    return made.with_attr((attribute or of).attributes)


def workload(*arguments, **named):
    return tvm.IRModule({"main": function(*arguments, **named)})


def drawn(of):
    """Return images and corners: inside, across an edge, outside, a point, of an image beside."""
    generator = np.random.default_rng(3)
    size = np.array([WIDTH, HEIGHT, WIDTH, HEIGHT]) / of.scale
    corners = generator.uniform(-0.3, 1.3, (12, 4)) * size
    corners = np.concatenate([np.sort(corners[:, ::2]), np.sort(corners[:, 1::2])], 1)
    corners = corners[:, [0, 2, 1, 3]]
    corners[0], corners[1] = corners[0, 0], size * 3
    data = generator.standard_normal((2, CHANNELS, HEIGHT, WIDTH)).astype("float32")
    return data, corners.astype("float32"), np.arange(12) % 2


def by_onnxruntime(of, data, corners, images):
    way = "half_pixel" if of.half_pixel else "output_half_pixel"
    node = helper.make_node(
        "RoiAlign", ["x", "corners", "images"], ["y"], mode=of.mode, sampling_ratio=of.samples,
        spatial_scale=of.scale, output_height=of.cells[0], output_width=of.cells[1],
        coordinate_transformation_mode=way,
    )  # fmt: skip
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, data.shape),
        helper.make_tensor_value_info("corners", TensorProto.FLOAT, corners.shape),
        helper.make_tensor_value_info("images", TensorProto.INT64, images.shape),
    ]
    graph = helper.make_graph([node], "g", inputs, [helper.make_empty_tensor_value_info("y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return session.run(None, {"x": data, "corners": corners, "images": images})[0]


def computed(module, of, data, corners, images):
    out = np.full((len(corners), CHANNELS, *of.cells), np.nan, "float32")
    arrays = [np.ascontiguousarray(data.transpose(0, 2, 3, 1)), corners, images, out]
    given = [tvm.runtime.tensor(array) for array in arrays]
    tvm.compile(module, target=TARGET)["main"](*given)
    return given[-1].numpy()


@each_row(
    "of",
    [
        MEAN,
        form(half_pixel=False),
        form(samples=0),
        form(samples=0, half_pixel=False, scale=1.0),
        form(mode="max"),
        form(mode="max", samples=0, half_pixel=False, cells=(1, 3)),
        form(samples=1, cells=(1, 1)),
    ],
)
def test_regions_are_what_onnxruntime_makes_of_them(of):
    given, module = drawn(of), workload(of, 12)
    wanted = by_onnxruntime(of, *given)
    assert np.abs(wanted).max() > 0.5
    served = serve(module, HARDWARE)
    assert served is not None
    assert served.template.name == "regions"
    for written in (module, served.schedule.mod):
        np.testing.assert_allclose(computed(written, of, *given), wanted, 1e-4, 1e-5)


def test_any_number_of_regions_is_right_and_none_is_a_number():
    count = tirx.Var("n", "int64")
    made = function(MEAN, count).with_attr(kernel_sizes.SIZES, [[0, 12, 40]])
    module = tvm.IRModule({"main": made})
    served = serve(module, HARDWARE)
    assert served is not None
    assert served.template.name == "regions"
    checked(module, served.schedule.mod, TARGET)
    data, corners, images = drawn(MEAN)
    wanted = by_onnxruntime(MEAN, data, corners, images)
    for number in (0, 1, 12):
        some = computed(served.schedule.mod, MEAN, data, corners[:number], images[:number])
        np.testing.assert_allclose(some, wanted[:number], 1e-4, 1e-5)


def test_numbers_of_images_and_corners_that_make_no_sense_read_nothing_beside_the_image():
    of = form(samples=0)
    data, corners, _ = drawn(of)
    corners[:4] = np.nan, np.inf, -np.inf, -1e30
    corners[4:] = corners[4:, [2, 3, 0, 1]]  # from right to left
    images = np.array([-1, 2, 2**40, -(2**40)] * 3)
    module = workload(of, 12)
    served = serve(module, HARDWARE)
    assert served is not None
    checked(module, served.schedule.mod, TARGET)
    found = computed(served.schedule.mod, of, data, corners, images)
    assert found.shape == (12, CHANNELS, 3, 2)


@each_row(
    "made",
    [
        lambda: workload(MEAN, 4, attribute=form(samples=3)),
        lambda: workload(MEAN, 4, attribute=form(scale=0.5)),
        lambda: workload(MEAN, 4, dtype="float16"),
        lambda: tvm.IRModule({"main": function(MEAN, 4).without_attr("autopipe.regions")}),
    ],
)
def test_an_attribute_is_believed_only_where_the_loops_are_what_it_says(made):
    assert REGIONS.match(make_schedule(made())) is None


def test_what_is_no_form_is_none():
    assert parse_form("") is None
    assert parse_form(MEAN.model_dump_json()) == MEAN
    assert parse_form(MEAN.model_dump_json().replace('"samples":2', '"samples":1000')) is None
