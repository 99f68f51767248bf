"""Builds with a fault of our choice, as the stages that make them would leave it."""

import shutil
from dataclasses import replace

import tvm
import tvm_ffi

from autopipe.artifacts.library import BuiltLibrary
from autopipe.artifacts.model_nodes import PACKED, LibraryNodes, NodeMap
from autopipe.compiler import module_io
from autopipe.compiler.library import build
from autopipe.compiler.target.target import make_target
from autopipe.schedules.model_weights import ModelWeights


def above(kernel, least=0.25):
    """Return a kernel whose maxima are with another number than 0."""
    constant = tvm.tirx.const(least, "float32")
    return tvm_ffi.structural_map(kernel, (tvm.tirx.Max, lambda one: tvm.tirx.Max(one.a, constant)))


def far(kernel):
    """Return a kernel that writes where no memory is."""

    def moved(store):
        indices = [*store.indices[:-1], store.indices[-1] + (1 << 40)]
        return tvm.tirx.BufferStore(store.buffer, store.value, indices)

    return tvm_ffi.structural_map(kernel, (tvm.tirx.BufferStore, moved))


def plant(target, folder, kernel, change, *, lowered=False):
    """Return a target whose kernel is changed: in its library, or where it was `lowered` as well.

    The other kernels are plain loops.
    """
    artifacts = {**target.artifacts}
    for stage in ("build", "lower"):
        artifacts[stage] = folder / stage
        shutil.copytree(target.artifacts[stage], folder / stage)
        for path in (folder / stage, *(folder / stage).iterdir()):
            path.chmod(0o700)
    module = module_io.load_lowered(artifacts["lower"])[""]
    wrong = change(module[kernel])
    if lowered:
        module.update_func(module.get_global_var(kernel), wrong)
        module_io.save_module(module, artifacts["lower"] / "module.json")
    library = BuiltLibrary.read(artifacts["build"])
    bodies = {} if lowered else {kernel: tvm.IRModule({"main": wrong})}
    made = build.build_library(module, bodies, make_target(library.target))
    build.export(made, artifacts["build"] / "lib.so")
    weights = ModelWeights(artifacts["import"], artifacts["optimize"], 1).pack(made.packing)
    names = [f"w{at}" for at in range(len(weights))]
    stored = dict(zip(names, weights, strict=True))
    module_io.save_aligned_weights(stored, artifacts["build"] / "weights.safetensors")
    library.model_copy(update={"weights": tuple(names)}).write(artifacts["build"])
    nodes = NodeMap.read(artifacts["build"]).nodes
    calls = LibraryNodes(library="lib.so", functions=made.functions)
    NodeMap(nodes=nodes, libraries=(calls,)).write(artifacts["build"])
    return replace(target, artifacts=artifacts)


def kernel_of(target, node):
    """Return the name of the lowered function that computes a node of the model."""
    nodes = NodeMap.read(target.artifacts["build"])
    place = [one.name for one in nodes.nodes].index(node)
    calls = nodes.named("lib.so").functions[0].calls
    return next(
        one.kernel.removesuffix(PACKED) for one in calls if place in one.nodes and not one.added
    )
