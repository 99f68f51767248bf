"""Random small Relax graphs, as a frontend would give them: one input, then weights."""

import math

import tvm
from hypothesis import strategies as st
from tvm import relax

op, nn = relax.op, relax.op.nn

DTYPE = "float32"
MOST = 4096
"""Elements of a value that is still worked on."""


class Graph:
    """A graph under construction."""

    def __init__(self, draw):
        self.draw = draw
        self.builder = relax.BlockBuilder()
        self.weights = []
        self.beside = []  # what ops compute beside what they return

    def pick(self, *choices):
        return self.draw(st.sampled_from(choices))

    def flip(self):
        return self.draw(st.booleans())

    def weight(self, *shape):
        name = f"w{len(self.weights)}"
        self.weights.append(relax.Var(name, relax.TensorType(shape, DTYPE)))
        return self.weights[-1]

    def axis(self, x):
        return self.pick(*range(-rank(x), rank(x)))

    def axes(self, x):
        """Some axes in order, perhaps counted from the end, or None for all."""
        some = self.draw(st.sets(st.integers(0, rank(x) - 1), min_size=1))
        return self.pick(None, sorted(some), [axis - rank(x) for axis in sorted(some)])


def shape(x):
    return [int(extent) for extent in x.ty.shape]


def rank(x):
    return len(shape(x))


def convolution(g, x):
    channels, *space = shape(x)[1:]
    n, kernels = len(space), [g.pick(1, 2, 3) for _ in space]
    groups, out = g.pick((1, 4), (1, 6), (2, 4), (channels, channels), (channels, 2 * channels))
    groups = groups if channels % groups == 0 else 1
    pads = [g.pick(0, 1, 3) if min(space) > 4 else 2 for _ in range(2 * n)]  # so that taps fit
    dilation = [g.pick(1, 2) for _ in space]
    return {1: nn.conv1d, 2: nn.conv2d, 3: nn.conv3d}[n](
        x, g.weight(out, channels // groups, *kernels), strides=[g.pick(1, 2) for _ in space],
        padding=pads, dilation=dilation, groups=groups,
    )  # fmt: skip


def transposed(g, x):
    channels, *space = shape(x)[1:]
    convolve = {1: nn.conv1d_transpose, 2: nn.conv2d_transpose}[len(space)]
    kernel = g.weight(channels, 3, *(3 for _ in space))
    return convolve(x, kernel, strides=g.pick(1, 2), dilation=g.pick(1, 2))


def pool(g, x):
    n = rank(x) - 2
    name = g.pick("max_pool", "avg_pool") + f"{n}d"
    more = {"count_include_pad": g.flip()} if name.startswith("avg") else {}
    return getattr(nn, name)(
        x, [2] * n, strides=[g.pick(1, 2) for _ in range(n)], padding=[g.pick(0, 1)] * 2 * n,
        ceil_mode=g.flip(), **more,
    )  # fmt: skip


def adaptive(g, x):
    return nn.adaptive_avg_pool2d(x, g.pick((1, 1), (2, 3)))


def resize(g, x):
    return op.image.resize2d(
        x, g.pick((4, 6), (7, 7)), layout="NCHW", method=g.pick("nearest_neighbor", "linear"),
        coordinate_transformation_mode=g.pick("half_pixel", "align_corners", "asymmetric"),
        rounding_method="round",
    )  # fmt: skip


def batch_norm(g, x):
    stored = [g.weight(shape(x)[1]) for _ in range(4)]
    normal = nn.batch_norm(x, *stored, axis=1, epsilon=g.pick(1e-5, 1e-3), training=False)
    return relax.TupleGetItem(g.builder.emit(normal), 0)


def group_norm(g, x):
    channels = shape(x)[1]
    groups = g.pick(*(n for n in (1, 2, channels) if channels % n == 0))
    scale, shift = g.weight(channels), g.weight(channels)
    return nn.group_norm(x, scale, shift, groups, 1, list(range(2, rank(x))), epsilon=1e-5)


def layer_norm(g, x):
    first = g.pick(*range(rank(x)))
    last = shape(x)[first:]
    axes = list(range(first, rank(x)))
    return nn.layer_norm(x, g.weight(*last), g.weight(*last), axes, epsilon=g.pick(1e-5, 1e-6))


def dense(g, x):
    return op.matmul(x, g.weight(shape(x)[-1], g.pick(3, 8)))


def own_product(g, x):
    order = [*range(rank(x) - 2), rank(x) - 1, rank(x) - 2]
    return op.matmul(x, g.builder.emit(op.permute_dims(x, order)))


def elementwise(g, x):
    ops = op.tanh, op.sigmoid, op.abs, op.negative, nn.relu, nn.silu, nn.gelu, op.square, op.erf
    return g.pick(*ops, nn.leakyrelu, lambda x: op.clip(x, -1.0, g.pick(0.5, 6.0)))(x)


def broadcast(g, x):
    binary = g.pick(op.add, op.subtract, op.multiply, op.maximum, op.minimum)
    fitting = [relax.const(g.pick(0.5, 2.0), DTYPE), x, g.weight(*shape(x)), g.weight(shape(x)[-1])]
    if rank(x) > 2:
        channel = [shape(x)[1], *(1 for _ in shape(x)[2:])]
        fitting += [g.weight(*channel), g.weight(1, *channel)]
    sides = [x, g.pick(*fitting)]
    return binary(*(sides if g.flip() else reversed(sides)))


def reduction(g, x):
    name = g.pick("mean", "sum", "max", "min", "variance", "std")
    return getattr(op, name)(x, g.axes(x), keepdims=g.flip())


def softmax(g, x):
    return g.pick(nn.softmax, nn.log_softmax)(x, g.axis(x))


def concat(g, x):
    return op.concat([x, g.pick(x, g.builder.emit(op.tanh(x)))], g.axis(x))


def split(g, x):
    axis = g.pick(*range(rank(x)))
    extent = shape(x)[axis]
    if extent < 2:
        return op.abs(x)
    how = g.pick(*([2] if extent % 2 == 0 else []), [1], [extent // 2])
    pieces = g.builder.emit(op.split(x, how, axis))
    if g.flip():
        return op.concat(pieces, axis)
    many = [relax.TupleGetItem(pieces, i) for i in range(len(pieces.ty.fields))]
    many = [g.builder.emit(each) for each in many]
    if shape(many[0]) == shape(many[1]) and g.flip():
        return op.subtract(*many)
    g.beside += many
    return many.pop()


def permute(g, x):
    return op.permute_dims(x, g.draw(st.permutations(range(rank(x)))))


def reshape(g, x):
    whole, first = math.prod(shape(x)), shape(x)[0]
    return op.reshape(x, g.pick((whole,), (first, -1), (*shape(x), 1), (-1, shape(x)[-1])))


def new_axis(g, x):
    return op.expand_dims(x, [g.pick(*range(rank(x) + 1))])


def squeeze(g, x):
    ones = [axis for axis, extent in enumerate(shape(x)) if extent == 1]
    return op.squeeze(x, [g.pick(*ones)]) if ones else op.squeeze(x)


def strided_slice(g, x):
    axis = g.pick(*range(rank(x)))
    extent = shape(x)[axis]
    begin = g.pick(*range((extent + 1) // 2))
    return op.strided_slice(x, [axis], [begin], [extent], [g.pick(1, 2)])


def pad(g, x):
    widths = [g.pick(0, 1) for _ in range(2 * rank(x))]
    return nn.pad(x, widths, "constant", g.pick(0.0, -1.5))


def where(g, x):
    positive = g.builder.emit(op.greater(x, relax.const(0.0, DTYPE)))
    return op.where(positive, x, g.builder.emit(op.tanh(x)))


def take(g, x):
    axis = g.pick(*range(rank(x)))
    ids = relax.const(g.draw(st.lists(st.integers(0, shape(x)[axis] - 1), min_size=1, max_size=3)))
    return op.take(x, g.builder.emit(op.astype(ids, "int64")), axis, mode="clip")


def rearrange(g, x):
    ops = (
        lambda: op.flip(x, g.axis(x)),
        lambda: op.tile(x, [g.pick(1, 2) for _ in shape(x)]),
        lambda: op.repeat(x, 2, g.pick(*range(rank(x)))),
        lambda: op.broadcast_to(x, (2, *shape(x))),
        lambda: op.cumsum(x, g.pick(*range(rank(x)))),
        lambda: op.full_like(x, relax.const(0.25, DTYPE)),
    )
    return g.pick(*ops)()


def rounding(g, x):
    """Ops that jump, so that rounding may change what they compute."""
    ids = g.builder.emit(op.argmax(x, g.pick(*range(rank(x)))))
    ops = (
        lambda: op.astype(ids, DTYPE),
        lambda: op.astype(g.builder.emit(op.astype(x, g.pick("int32", "bool"))), DTYPE),
        lambda: op.astype(g.builder.emit(op.astype(x, "float16")), DTYPE),
        lambda: op.sort(x, g.pick(-1, 0)),
        lambda: op.one_hot(ids, tvm.tirx.FloatImm(DTYPE, 1), tvm.tirx.FloatImm(DTYPE, -1), 3, -1),
    )
    return g.pick(*ops)()


SPATIAL = {
    3: (convolution, transposed, pool, batch_norm, group_norm),
    4: (convolution, transposed, pool, adaptive, resize, batch_norm, group_norm),
    5: (convolution, pool, batch_norm),
}
"""By rank, ops on images with channels in the second place."""

ANYWHERE = (
    elementwise, broadcast, reduction, softmax, concat, split, permute, reshape, new_axis, squeeze,
    strided_slice, pad, where, take, rearrange,
)  # fmt: skip


def fits(x):
    return isinstance(x.ty, relax.TensorType) and 0 < math.prod(shape(x)) <= MOST


@st.composite
def graphs(draw, ranks=(2, 3, 4, 5), *, steps=8, jumps=True, convolved=False):
    """A module whose `main` takes one input, then the weights; results may be equal or inputs."""
    g = Graph(draw)
    sizes = {2: (3, 8), 3: (1, 4, 9), 4: (1, 4, 7, 8), 5: (1, 2, 4, 5, 4)}
    x = relax.Var("x", relax.TensorType(sizes[draw(st.sampled_from(ranks))], DTYPE))
    values = [x]
    with g.builder.function("main"):
        with g.builder.dataflow():
            if convolved:
                values.append(g.builder.emit(convolution(g, x)))
            for _ in range(draw(st.integers(1, steps))):
                source = draw(st.sampled_from(values[-3:]))
                if (made := step(g, source, jumps=jumps)) is not None:
                    values += [*filter(fits, g.beside), made]
                g.beside.clear()
            wanted = draw(st.lists(st.sampled_from(values[1:] or values), min_size=1, max_size=3))
            results = [g.builder.emit_output(each) for each in [*wanted, values[-1]]]
        g.builder.emit_func_output(relax.Tuple(results), [x, *g.weights])
    return g.builder.get()


def step(g, x, *, jumps):
    """Apply some op to a value; None where what comes out is no more to be worked on."""
    if rank(x) == 0:
        return None
    matrix = (dense, own_product, layer_norm) if rank(x) > 1 else ()
    image = SPATIAL.get(rank(x), ())
    made = g.pick(*image, *image, *matrix, *ANYWHERE, *((rounding,) if jumps else ()))(g, x)
    made = g.builder.emit(made)
    return made if fits(made) else None
