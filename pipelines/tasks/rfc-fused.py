"""conv2d, relu, conv2d, relu as one primitive function: the example of the RFC.

"A general task extraction mechanism for auto_scheduler": such a function has two reductions, and
no schedule of one anchor operator fits it.
"""

from tvm.script import tirx as T


@T.prim_func(s_tir=True)
def conv2d_relu_conv2d_relu(
    data: T.Buffer((1, 3, 224, 224), "float32"),
    weight1: T.Buffer((32, 3, 3, 3), "float32"),
    weight2: T.Buffer((32, 32, 3, 3), "float32"),
    result: T.Buffer((1, 32, 224, 224), "float32"),
):
    T.func_attr({"num_input": 1, "tirx.noalias": True})
    data_padded = T.sblock_alloc_buffer((1, 3, 226, 226))
    conv1 = T.sblock_alloc_buffer((1, 32, 224, 224))
    relu1 = T.sblock_alloc_buffer((1, 32, 224, 224))
    relu1_padded = T.sblock_alloc_buffer((1, 32, 226, 226))
    conv2 = T.sblock_alloc_buffer((1, 32, 224, 224))
    for n, c, i, j in T.grid(1, 3, 226, 226):
        with T.sblock("conv1_pad"):
            v_n, v_c, v_i, v_j = T.axis.remap("SSSS", [n, c, i, j])
            data_padded[v_n, v_c, v_i, v_j] = T.if_then_else(
                1 <= v_i and v_i < 225 and 1 <= v_j and v_j < 225,
                data[v_n, v_c, v_i - 1, v_j - 1],
                T.float32(0),
            )
    for n, o, i, j, c, di, dj in T.grid(1, 32, 224, 224, 3, 3, 3):
        with T.sblock("conv1"):
            v_n, v_o, v_i, v_j, v_c, v_di, v_dj = T.axis.remap("SSSSRRR", [n, o, i, j, c, di, dj])
            with T.init():
                conv1[v_n, v_o, v_i, v_j] = T.float32(0)
            conv1[v_n, v_o, v_i, v_j] = (
                conv1[v_n, v_o, v_i, v_j]
                + data_padded[v_n, v_c, v_i + v_di, v_j + v_dj] * weight1[v_o, v_c, v_di, v_dj]
            )
    for n, o, i, j in T.grid(1, 32, 224, 224):
        with T.sblock("relu1"):
            v_n, v_o, v_i, v_j = T.axis.remap("SSSS", [n, o, i, j])
            relu1[v_n, v_o, v_i, v_j] = T.max(conv1[v_n, v_o, v_i, v_j], T.float32(0))
    for n, c, i, j in T.grid(1, 32, 226, 226):
        with T.sblock("conv2_pad"):
            v_n, v_c, v_i, v_j = T.axis.remap("SSSS", [n, c, i, j])
            relu1_padded[v_n, v_c, v_i, v_j] = T.if_then_else(
                1 <= v_i and v_i < 225 and 1 <= v_j and v_j < 225,
                relu1[v_n, v_c, v_i - 1, v_j - 1],
                T.float32(0),
            )
    for n, o, i, j, c, di, dj in T.grid(1, 32, 224, 224, 32, 3, 3):
        with T.sblock("conv2"):
            v_n, v_o, v_i, v_j, v_c, v_di, v_dj = T.axis.remap("SSSSRRR", [n, o, i, j, c, di, dj])
            with T.init():
                conv2[v_n, v_o, v_i, v_j] = T.float32(0)
            conv2[v_n, v_o, v_i, v_j] = (
                conv2[v_n, v_o, v_i, v_j]
                + relu1_padded[v_n, v_c, v_i + v_di, v_j + v_dj] * weight2[v_o, v_c, v_di, v_dj]
            )
    for n, o, i, j in T.grid(1, 32, 224, 224):
        with T.sblock("relu2"):
            v_n, v_o, v_i, v_j = T.axis.remap("SSSS", [n, o, i, j])
            result[v_n, v_o, v_i, v_j] = T.max(conv2[v_n, v_o, v_i, v_j], T.float32(0))
