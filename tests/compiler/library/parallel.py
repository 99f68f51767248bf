"""A library whose kernel runs on several threads."""

from safetensors.numpy import save_file

from autopipe.artifacts.signature import Port
from tests.artifacts.examples import library as described


def save_parallel(folder, threads):
    """Write the library of a model with one parallel loop."""
    import tvm

    source = """
@I.ir_module
class Module:
    @T.prim_func(private=True, s_tir=True)
    def slow(A: T.Buffer((1048576,), "float32"), B: T.Buffer((1048576,), "float32")):
        for i in T.parallel(16):
            for j in range(65536):
                B[i * 65536 + j] = T.exp(T.tanh(T.sin(A[i * 65536 + j])))

    @R.function
    def main(x: R.Tensor((1048576,), "float32")):
        cls = Module
        y = R.call_tir(cls.slow, (x,), R.Tensor((1048576,), "float32"))
        return y
"""
    target = tvm.target.Target({"kind": "llvm", "num-cores": 2})
    built = tvm.compile(tvm.script.from_source(source), target=target)
    built.export_library(str(folder / "lib.so"))
    save_file({}, folder / "weights.safetensors")
    x, y = (Port(name=name, shape=(1048576,), dtype="float32") for name in "xy")
    described(inputs=(x,), outputs=(y,), threads=threads).write(folder)
