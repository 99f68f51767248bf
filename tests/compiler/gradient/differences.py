"""Gradients of TE computes beside central differences in float64."""

import numpy as np
import tvm
from tvm import te

import autopipe
from autopipe.compiler.codegen.compile_kernels import compile_kernel

HOST = tvm.target.Target({"kind": "llvm"})
STEP = 1e-6


def placeholder(*shape, name="x"):
    return te.placeholder(shape, "float64", name=name)


def reads(outputs):
    """Return the placeholders that some tensors are computed from."""
    found: list[te.Tensor] = []
    left = list(outputs)
    while left:
        tensor = left.pop()
        if any(tensor.same_as(other) for other in found):
            continue
        found.append(tensor)
        left += list(tensor.op.input_tensors)
    return [tensor for tensor in found if isinstance(tensor.op, te.PlaceholderOp)]


def compiled(inputs, outputs):
    """Return the computes as a function of arrays, by the operations that have them."""
    used = [one for one in inputs if any(one.same_as(other) for other in reads(outputs))]
    library = compile_kernel(tvm.IRModule({"main": te.create_prim_func([*used, *outputs])}), HOST)

    def run(arrays):
        given = [arrays[one.op] for one in used]
        made = [np.zeros([int(n) for n in out.shape], str(out.dtype)) for out in outputs]
        tensors = [tvm.runtime.tensor(array) for array in (*given, *made)]
        library["main"](*tensors)
        return [tensor.numpy() for tensor in tensors[len(given) :]]

    return run


def drawn(tensor, generator):
    """Return values in [-1, 1] for a placeholder of floats."""
    return generator.uniform(-1, 1, [int(n) for n in tensor.shape]).astype(str(tensor.dtype))


def worst(inputs, output, samples=6):
    """Return how far the gradient is from central differences, as a part of them, at worst."""
    generator = np.random.default_rng(0)
    head = te.placeholder(output.shape, "float64", name="head")
    arrays = {one.op: drawn(one, generator) for one in (*inputs, head)}
    gradients = autopipe.gradient(output, inputs, head)
    forward = compiled(inputs, [output])
    found = compiled([*inputs, head], gradients)(arrays)

    def loss(of, at, change):
        moved = arrays[of.op].copy()
        moved[at] += change
        return float((forward({**arrays, of.op: moved})[0] * arrays[head.op]).sum())

    off = 0.0
    for one, gradient in zip(inputs, found, strict=True):
        for _ in range(samples):
            at = tuple(generator.integers(0, size) for size in gradient.shape)
            right = (loss(one, at, STEP) - loss(one, at, -STEP)) / (2 * STEP)
            off = max(off, abs(right - gradient[at]) / (1e-3 + abs(right)))
    return off
