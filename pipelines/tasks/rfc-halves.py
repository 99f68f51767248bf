"""The two halves of rfc-fused.py, conv2d and relu each, as two primitive functions."""

from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T


@I.ir_module
class Module:
    @T.prim_func(s_tir=True, private=True)
    def conv2d_relu1(
        data: T.Buffer((1, 3, 224, 224), "float32"),
        weight: T.Buffer((32, 3, 3, 3), "float32"),
        result: T.Buffer((1, 32, 224, 224), "float32"),
    ):
        T.func_attr({"tirx.noalias": True})
        data_padded = T.sblock_alloc_buffer((1, 3, 226, 226))
        conv = T.sblock_alloc_buffer((1, 32, 224, 224))
        for n, c, i, j in T.grid(1, 3, 226, 226):
            with T.sblock("conv_pad"):
                v_n, v_c, v_i, v_j = T.axis.remap("SSSS", [n, c, i, j])
                data_padded[v_n, v_c, v_i, v_j] = T.if_then_else(
                    1 <= v_i and v_i < 225 and 1 <= v_j and v_j < 225,
                    data[v_n, v_c, v_i - 1, v_j - 1],
                    T.float32(0),
                )
        for n, o, i, j, c, di, dj in T.grid(1, 32, 224, 224, 3, 3, 3):
            with T.sblock("conv"):
                v_n, v_o, v_i, v_j, v_c, v_di, v_dj = T.axis.remap(
                    "SSSSRRR", [n, o, i, j, c, di, dj]
                )
                with T.init():
                    conv[v_n, v_o, v_i, v_j] = T.float32(0)
                conv[v_n, v_o, v_i, v_j] = (
                    conv[v_n, v_o, v_i, v_j]
                    + data_padded[v_n, v_c, v_i + v_di, v_j + v_dj] * weight[v_o, v_c, v_di, v_dj]
                )
        for n, o, i, j in T.grid(1, 32, 224, 224):
            with T.sblock("relu"):
                v_n, v_o, v_i, v_j = T.axis.remap("SSSS", [n, o, i, j])
                result[v_n, v_o, v_i, v_j] = T.max(conv[v_n, v_o, v_i, v_j], T.float32(0))

    @T.prim_func(s_tir=True, private=True)
    def conv2d_relu2(
        data: T.Buffer((1, 32, 224, 224), "float32"),
        weight: T.Buffer((32, 32, 3, 3), "float32"),
        result: T.Buffer((1, 32, 224, 224), "float32"),
    ):
        T.func_attr({"tirx.noalias": True})
        data_padded = T.sblock_alloc_buffer((1, 32, 226, 226))
        conv = T.sblock_alloc_buffer((1, 32, 224, 224))
        for n, c, i, j in T.grid(1, 32, 226, 226):
            with T.sblock("conv_pad"):
                v_n, v_c, v_i, v_j = T.axis.remap("SSSS", [n, c, i, j])
                data_padded[v_n, v_c, v_i, v_j] = T.if_then_else(
                    1 <= v_i and v_i < 225 and 1 <= v_j and v_j < 225,
                    data[v_n, v_c, v_i - 1, v_j - 1],
                    T.float32(0),
                )
        for n, o, i, j, c, di, dj in T.grid(1, 32, 224, 224, 32, 3, 3):
            with T.sblock("conv"):
                v_n, v_o, v_i, v_j, v_c, v_di, v_dj = T.axis.remap(
                    "SSSSRRR", [n, o, i, j, c, di, dj]
                )
                with T.init():
                    conv[v_n, v_o, v_i, v_j] = T.float32(0)
                conv[v_n, v_o, v_i, v_j] = (
                    conv[v_n, v_o, v_i, v_j]
                    + data_padded[v_n, v_c, v_i + v_di, v_j + v_dj] * weight[v_o, v_c, v_di, v_dj]
                )
        for n, o, i, j in T.grid(1, 32, 224, 224):
            with T.sblock("relu"):
                v_n, v_o, v_i, v_j = T.axis.remap("SSSS", [n, o, i, j])
                result[v_n, v_o, v_i, v_j] = T.max(conv[v_n, v_o, v_i, v_j], T.float32(0))

    @R.function
    def main(
        data: R.Tensor((1, 3, 224, 224), "float32"),
        weight1: R.Tensor((32, 3, 3, 3), "float32"),
        weight2: R.Tensor((32, 32, 3, 3), "float32"),
    ):
        R.func_attr({"num_input": 1})
        cls = Module
        with R.dataflow():
            between = R.call_tir(
                cls.conv2d_relu1, (data, weight1), out_ty=R.Tensor((1, 32, 224, 224), "float32")
            )
            result = R.call_tir(
                cls.conv2d_relu2, (between, weight2), out_ty=R.Tensor((1, 32, 224, 224), "float32")
            )
            R.output(result)
        return result
