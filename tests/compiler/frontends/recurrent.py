"""Recurrent layers for tests: many of them in one model, as it takes long to compile one."""

import numpy as np
from onnx import helper, numpy_helper

from tests.compiler.frontends.models import model

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


class Layers:
    """A model of layers that have nothing to do with each other."""

    def __init__(self, seed=0):
        self.feeds = {}
        self._random = np.random.default_rng(seed)
        self._nodes, self._inputs, self._outputs, self._stored = [], [], [], []

    def add(
        self, kind, size=(5, 3, 4, 6), *, given="B", outputs=None, lengths=None, dtype="float32",
        stored=True, **attributes,
    ):  # fmt: skip
        """Add a layer of (steps, batch, inputs, hidden); `given` names optional inputs."""
        steps, batch, inputs, hidden = size
        ways = 2 if attributes.get("direction") == "bidirectional" else 1
        name, gates = f"layer{len(self._nodes)}", GATES[kind]
        first = attributes.get("layout", 0)
        state = (batch, ways, hidden) if first else (ways, batch, hidden)
        shapes = {
            "X": (batch, steps, inputs) if first else (steps, batch, inputs),
            "W": (ways, gates * hidden, inputs),
            "R": (ways, gates * hidden, hidden),
            "B": (ways, 2 * gates * hidden),
            "initial_h": state,
            "initial_c": state,
            "P": (ways, 3 * hidden),
        }
        optional = given.split() if kind == "LSTM" else set(given.split()) - {"initial_c", "P"}
        read = []
        for port in ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P"):
            there = port in "XWR" or port in optional
            read.append(f"{name}.{port}" if there else "")
            if port == "sequence_lens" and lengths is not None:
                read[-1] = f"{name}.{port}"
                self._give(read[-1], np.array(lengths, "int32"), stored="length" in optional)
            elif there:
                values = self._random.uniform(-0.9, 0.9, shapes[port]).astype(dtype)
                self._give(read[-1], values, stored=stored and port in "WRBP")
        while not read[-1]:
            read.pop()
        written = outputs or (["Y", "Y_h", "Y_c"] if kind == "LSTM" else ["Y", "Y_h"])
        written = [port and f"{name}.{port}" for port in written]
        made = helper.make_node(kind, read, written, name=name, hidden_size=hidden, **attributes)
        self._nodes.append(made)
        code = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self._outputs += [helper.make_tensor_value_info(o, code, None) for o in written if o]

    def model(self, **fields):
        """Return the model of all layers."""
        return model(self._nodes, self._inputs, self._outputs, self._stored, **fields)

    def _give(self, name, values, *, stored):
        if stored:
            self._stored.append(numpy_helper.from_array(values, name))
            return
        code = helper.np_dtype_to_tensor_dtype(values.dtype)
        self._inputs.append(helper.make_tensor_value_info(name, code, values.shape))
        self.feeds[name] = values


def compiled(imported, feeds):
    """Return the outputs that TVM computes, compiled in a hurry."""
    import tvm
    from tvm import relax

    target = tvm.target.Target({"kind": "llvm", "opt-level": 0, "num-cores": 1})
    machine = relax.VirtualMachine(tvm.compile(imported.module, target=target), tvm.cpu())
    arrays = [*feeds.values(), *imported.weights.values()]
    return [
        result.numpy()
        for result in machine["main"](*map(tvm.runtime.tensor, map(contiguous, arrays)))
    ]


def contiguous(values):
    return np.ascontiguousarray(values)
