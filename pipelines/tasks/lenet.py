"""LeNet-5, forward and backward, for 64 images, by `models/make_lenet.py`.

Images, parts of each class, and ten weights; the loss of each image, and the gradients of its sum.
"""

from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T


@I.ir_module
class Module:
    @T.prim_func(s_tir=True)
    def T_softmax_maxelem(in0: T.Buffer((64, 10), "float32"), out: T.Buffer((64,), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0, k in T.grid(64, 10):
            with T.sblock("out"):
                v_i0, v_k = T.axis.remap("SR", [i0, k])
                T.reads(in0[v_i0, v_k])
                T.writes(out[v_i0])
                with T.init():
                    out[v_i0] = T.float32(-340282346638528859811704183484516925440.0)
                out[v_i0] = T.max(out[v_i0], in0[v_i0, v_k])

    @T.prim_func(s_tir=True)
    def T_softmax_maxelem_adjoint(in0: T.Buffer((64,), "float32"), in1: T.Buffer((64,), "float32"), out: T.Buffer((64,), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0 in range(64):
            with T.sblock("out"):
                v_i0 = T.axis.spatial(64, i0)
                T.reads(in0[v_i0], in1[v_i0])
                T.writes(out[v_i0])
                out[v_i0] = in0[v_i0] + in1[v_i0]

    @T.prim_func(s_tir=True)
    def T_softmax_maxelem_by_compute(in0: T.Buffer((64, 10), "float32"), out: T.Buffer((64,), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0, i1 in T.grid(64, 10):
            with T.sblock("out"):
                v_i0, v_i1 = T.axis.remap("SR", [i0, i1])
                T.reads(in0[v_i0, v_i1])
                T.writes(out[v_i0])
                with T.init():
                    out[v_i0] = T.float32(0.0)
                out[v_i0] = out[v_i0] + in0[v_i0, v_i1] * T.float32(-1.0)

    @T.prim_func(s_tir=True)
    def T_softmax_maxelem_by_compute1(in0: T.Buffer((64,), "float32"), in1: T.Buffer((64, 10), "float32"), in2: T.Buffer((64,), "float32"), out: T.Buffer((64,), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0, k in T.grid(64, 10):
            with T.sblock("out"):
                v_i0, v_k = T.axis.remap("SR", [i0, k])
                T.reads(in0[v_i0], in1[v_i0, v_k], in2[v_i0])
                T.writes(out[v_i0])
                with T.init():
                    out[v_i0] = T.float32(0.0)
                out[v_i0] = out[v_i0] + in0[v_i0] * T.exp(in1[v_i0, v_k] - in2[v_i0]) * T.float32(-1.0)

    @T.prim_func(s_tir=True)
    def T_softmax_maxelem_equal(in0: T.Buffer((64, 10), "float32"), in1: T.Buffer((64,), "float32"), out: T.Buffer((64,), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0, k in T.grid(64, 10):
            with T.sblock("out"):
                v_i0, v_k = T.axis.remap("SR", [i0, k])
                T.reads(in0[v_i0, v_k], in1[v_i0])
                T.writes(out[v_i0])
                with T.init():
                    out[v_i0] = T.float32(0.0)
                out[v_i0] = out[v_i0] + T.Select(in0[v_i0, v_k] == in1[v_i0], T.float32(1.0), T.float32(0.0))

    @T.prim_func(s_tir=True)
    def T_softmax_maxelem_share(in0: T.Buffer((64,), "float32"), in1: T.Buffer((64,), "float32"), out: T.Buffer((64,), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0 in range(64):
            with T.sblock("out"):
                v_i0 = T.axis.spatial(64, i0)
                T.reads(in0[v_i0], in1[v_i0])
                T.writes(out[v_i0])
                out[v_i0] = in0[v_i0] / in1[v_i0]

    @T.prim_func(s_tir=True)
    def bias1_by_relu(in0: T.Buffer((64, 6, 28, 28), "float32"), in1: T.Buffer((6,), "float32"), in2: T.Buffer((64, 6, 28, 28), "float32"), out: T.Buffer((6,), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0, n, y, x in T.grid(6, 64, 28, 28):
            with T.sblock("out"):
                v_i0, v_n, v_y, v_x = T.axis.remap("SRRR", [i0, n, y, x])
                T.reads(in0[v_n, v_i0, v_y, v_x], in1[v_i0], in2[v_n, v_i0, v_y, v_x])
                T.writes(out[v_i0])
                with T.init():
                    out[v_i0] = T.float32(0.0)
                out[v_i0] = out[v_i0] + T.Select(T.float32(0.0) < in0[v_n, v_i0, v_y, v_x] + in1[v_i0], in2[v_n, v_i0, v_y, v_x], T.float32(0.0))

    @T.prim_func(s_tir=True)
    def bias2_by_relu(in0: T.Buffer((64, 16, 10, 10), "float32"), in1: T.Buffer((16,), "float32"), in2: T.Buffer((64, 16, 10, 10), "float32"), out: T.Buffer((16,), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0, n, y, x in T.grid(16, 64, 10, 10):
            with T.sblock("out"):
                v_i0, v_n, v_y, v_x = T.axis.remap("SRRR", [i0, n, y, x])
                T.reads(in0[v_n, v_i0, v_y, v_x], in1[v_i0], in2[v_n, v_i0, v_y, v_x])
                T.writes(out[v_i0])
                with T.init():
                    out[v_i0] = T.float32(0.0)
                out[v_i0] = out[v_i0] + T.Select(T.float32(0.0) < in0[v_n, v_i0, v_y, v_x] + in1[v_i0], in2[v_n, v_i0, v_y, v_x], T.float32(0.0))

    @T.prim_func(s_tir=True)
    def bias3_by_biased(in0: T.Buffer((64, 120), "float32"), out: T.Buffer((120,), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0, n in T.grid(120, 64):
            with T.sblock("out"):
                v_i0, v_n = T.axis.remap("SR", [i0, n])
                T.reads(in0[v_n, v_i0])
                T.writes(out[v_i0])
                with T.init():
                    out[v_i0] = T.float32(0.0)
                out[v_i0] = out[v_i0] + in0[v_n, v_i0]

    @T.prim_func(s_tir=True)
    def bias4_by_biased(in0: T.Buffer((64, 84), "float32"), out: T.Buffer((84,), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0, n in T.grid(84, 64):
            with T.sblock("out"):
                v_i0, v_n = T.axis.remap("SR", [i0, n])
                T.reads(in0[v_n, v_i0])
                T.writes(out[v_i0])
                with T.init():
                    out[v_i0] = T.float32(0.0)
                out[v_i0] = out[v_i0] + in0[v_n, v_i0]

    @T.prim_func(s_tir=True)
    def bias5_by_biased(in0: T.Buffer((64, 10), "float32"), out: T.Buffer((10,), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0, n in T.grid(10, 64):
            with T.sblock("out"):
                v_i0, v_n = T.axis.remap("SR", [i0, n])
                T.reads(in0[v_n, v_i0])
                T.writes(out[v_i0])
                with T.init():
                    out[v_i0] = T.float32(0.0)
                out[v_i0] = out[v_i0] + in0[v_n, v_i0]

    @T.prim_func(s_tir=True)
    def biased(in0: T.Buffer((64, 120), "float32"), in1: T.Buffer((120,), "float32"), out: T.Buffer((64, 120), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0, i1 in T.grid(64, 120):
            with T.sblock("out"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                T.reads(in0[v_i0, v_i1], in1[v_i1])
                T.writes(out[v_i0, v_i1])
                out[v_i0, v_i1] = in0[v_i0, v_i1] + in1[v_i1]

    @T.prim_func(s_tir=True)
    def biased1(in0: T.Buffer((64, 84), "float32"), in1: T.Buffer((84,), "float32"), out: T.Buffer((64, 84), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0, i1 in T.grid(64, 84):
            with T.sblock("out"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                T.reads(in0[v_i0, v_i1], in1[v_i1])
                T.writes(out[v_i0, v_i1])
                out[v_i0, v_i1] = in0[v_i0, v_i1] + in1[v_i1]

    @T.prim_func(s_tir=True)
    def biased2(in0: T.Buffer((64, 10), "float32"), in1: T.Buffer((10,), "float32"), out: T.Buffer((64, 10), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0, i1 in T.grid(64, 10):
            with T.sblock("out"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                T.reads(in0[v_i0, v_i1], in1[v_i1])
                T.writes(out[v_i0, v_i1])
                out[v_i0, v_i1] = in0[v_i0, v_i1] + in1[v_i1]

    @T.prim_func(s_tir=True)
    def biased_adjoint(in0: T.Buffer((64, 10), "float32"), in1: T.Buffer((64, 10), "float32"), in2: T.Buffer((64, 10), "float32"), out: T.Buffer((64, 10), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0, i1 in T.grid(64, 10):
            with T.sblock("out"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                T.reads(in0[v_i0, v_i1], in1[v_i0, v_i1], in2[v_i0, v_i1])
                T.writes(out[v_i0, v_i1])
                out[v_i0, v_i1] = in0[v_i0, v_i1] + in1[v_i0, v_i1] + in2[v_i0, v_i1]

    @T.prim_func(s_tir=True)
    def biased_by_T_softmax_maxelem(in0: T.Buffer((64, 10), "float32"), in1: T.Buffer((64,), "float32"), in2: T.Buffer((64,), "float32"), out: T.Buffer((64, 10), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0, i1 in T.grid(64, 10):
            with T.sblock("out"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                T.reads(in0[v_i0, v_i1], in1[v_i0], in2[v_i0])
                T.writes(out[v_i0, v_i1])
                out[v_i0, v_i1] = T.Select(in0[v_i0, v_i1] == in1[v_i0], in2[v_i0], T.float32(0.0))

    @T.prim_func(s_tir=True)
    def biased_by_compute(in0: T.Buffer((64, 10), "float32"), out: T.Buffer((64, 10), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0, i1 in T.grid(64, 10):
            with T.sblock("out"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                T.reads(in0[v_i0, v_i1])
                T.writes(out[v_i0, v_i1])
                out[v_i0, v_i1] = in0[v_i0, v_i1]

    @T.prim_func(s_tir=True)
    def biased_by_compute1(in0: T.Buffer((64,), "float32"), in1: T.Buffer((64, 10), "float32"), in2: T.Buffer((64,), "float32"), out: T.Buffer((64, 10), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0, i1 in T.grid(64, 10):
            with T.sblock("out"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                T.reads(in0[v_i0], in1[v_i0, v_i1], in2[v_i0])
                T.writes(out[v_i0, v_i1])
                out[v_i0, v_i1] = in0[v_i0] * T.exp(in1[v_i0, v_i1] - in2[v_i0])

    @T.prim_func(s_tir=True)
    def biased_by_compute2(in0: T.Buffer((64, 84), "float32"), in1: T.Buffer((64, 84), "float32"), out: T.Buffer((64, 84), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0, i1 in T.grid(64, 84):
            with T.sblock("out"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                T.reads(in0[v_i0, v_i1], in1[v_i0, v_i1])
                T.writes(out[v_i0, v_i1])
                out[v_i0, v_i1] = T.Select(T.float32(0.0) < in0[v_i0, v_i1], in1[v_i0, v_i1], T.float32(0.0))

    @T.prim_func(s_tir=True)
    def biased_by_compute3(in0: T.Buffer((64, 120), "float32"), in1: T.Buffer((64, 120), "float32"), out: T.Buffer((64, 120), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0, i1 in T.grid(64, 120):
            with T.sblock("out"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                T.reads(in0[v_i0, v_i1], in1[v_i0, v_i1])
                T.writes(out[v_i0, v_i1])
                out[v_i0, v_i1] = T.Select(T.float32(0.0) < in0[v_i0, v_i1], in1[v_i0, v_i1], T.float32(0.0))

    @T.prim_func(s_tir=True)
    def compute(in0: T.Buffer((64, 16, 5, 5), "float32"), out: T.Buffer((64, 400), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0, i1 in T.grid(64, 400):
            with T.sblock("out"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                T.reads(in0[v_i0, v_i1 % 400 // 25, v_i1 % 25 // 5, v_i1 % 5])
                T.writes(out[v_i0, v_i1])
                out[v_i0, v_i1] = in0[v_i0, v_i1 % 400 // 25, v_i1 % 25 // 5, v_i1 % 5]

    @T.prim_func(s_tir=True)
    def compute1(in0: T.Buffer((64, 120), "float32"), out: T.Buffer((64, 120), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0, i1 in T.grid(64, 120):
            with T.sblock("out"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                T.reads(in0[v_i0, v_i1])
                T.writes(out[v_i0, v_i1])
                out[v_i0, v_i1] = T.max(in0[v_i0, v_i1], T.float32(0.0))

    @T.prim_func(s_tir=True)
    def compute2(in0: T.Buffer((64, 84), "float32"), out: T.Buffer((64, 84), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0, i1 in T.grid(64, 84):
            with T.sblock("out"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                T.reads(in0[v_i0, v_i1])
                T.writes(out[v_i0, v_i1])
                out[v_i0, v_i1] = T.max(in0[v_i0, v_i1], T.float32(0.0))

    @T.prim_func(s_tir=True)
    def compute3(in0: T.Buffer((64, 10), "float32"), in1: T.Buffer((64,), "float32"), out: T.Buffer((64,), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0, k in T.grid(64, 10):
            with T.sblock("out"):
                v_i0, v_k = T.axis.remap("SR", [i0, k])
                T.reads(in0[v_i0, v_k], in1[v_i0])
                T.writes(out[v_i0])
                with T.init():
                    out[v_i0] = T.float32(0.0)
                out[v_i0] = out[v_i0] + T.exp(in0[v_i0, v_k] - in1[v_i0])

    @T.prim_func(s_tir=True)
    def compute4(in0: T.Buffer((64, 10), "float32"), in1: T.Buffer((64,), "float32"), in2: T.Buffer((64,), "float32"), out: T.Buffer((64, 10), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0, i1 in T.grid(64, 10):
            with T.sblock("out"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                T.reads(in0[v_i0, v_i1], in1[v_i0], in2[v_i0])
                T.writes(out[v_i0, v_i1])
                out[v_i0, v_i1] = in0[v_i0, v_i1] - in1[v_i0] - T.log(in2[v_i0])

    @T.prim_func(s_tir=True)
    def compute_by_compute(in0: T.Buffer((64, 10), "float32"), in1: T.Buffer((64,), "float32"), out: T.Buffer((64,), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0, i1 in T.grid(64, 10):
            with T.sblock("out"):
                v_i0, v_i1 = T.axis.remap("SR", [i0, i1])
                T.reads(in0[v_i0, v_i1], in1[v_i0])
                T.writes(out[v_i0])
                with T.init():
                    out[v_i0] = T.float32(0.0)
                out[v_i0] = out[v_i0] + in0[v_i0, v_i1] * T.float32(-1.0) * (T.float32(1.0) / in1[v_i0])

    @T.prim_func(s_tir=True)
    def compute_by_dense(in0: T.Buffer((64, 10), "float32"), in1: T.Buffer((10, 84), "float32"), out: T.Buffer((64, 84), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0, i1, o in T.grid(64, 84, 10):
            with T.sblock("out"):
                v_i0, v_i1, v_o = T.axis.remap("SSR", [i0, i1, o])
                T.reads(in0[v_i0, v_o], in1[v_o, v_i1])
                T.writes(out[v_i0, v_i1])
                with T.init():
                    out[v_i0, v_i1] = T.float32(0.0)
                out[v_i0, v_i1] = out[v_i0, v_i1] + in0[v_i0, v_o] * in1[v_o, v_i1]

    @T.prim_func(s_tir=True)
    def compute_by_dense1(in0: T.Buffer((64, 84), "float32"), in1: T.Buffer((84, 120), "float32"), out: T.Buffer((64, 120), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0, i1, o in T.grid(64, 120, 84):
            with T.sblock("out"):
                v_i0, v_i1, v_o = T.axis.remap("SSR", [i0, i1, o])
                T.reads(in0[v_i0, v_o], in1[v_o, v_i1])
                T.writes(out[v_i0, v_i1])
                with T.init():
                    out[v_i0, v_i1] = T.float32(0.0)
                out[v_i0, v_i1] = out[v_i0, v_i1] + in0[v_i0, v_o] * in1[v_o, v_i1]

    @T.prim_func(s_tir=True)
    def compute_by_dense2(in0: T.Buffer((64, 120), "float32"), in1: T.Buffer((120, 400), "float32"), out: T.Buffer((64, 400), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0, i1, o in T.grid(64, 400, 120):
            with T.sblock("out"):
                v_i0, v_i1, v_o = T.axis.remap("SSR", [i0, i1, o])
                T.reads(in0[v_i0, v_o], in1[v_o, v_i1])
                T.writes(out[v_i0, v_i1])
                with T.init():
                    out[v_i0, v_i1] = T.float32(0.0)
                out[v_i0, v_i1] = out[v_i0, v_i1] + in0[v_i0, v_o] * in1[v_o, v_i1]

    @T.prim_func(s_tir=True)
    def compute_by_loss(in0: T.Buffer((64,), "float32"), in1: T.Buffer((64, 10), "float32"), out: T.Buffer((64, 10), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0, i1 in T.grid(64, 10):
            with T.sblock("out"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                T.reads(in0[v_i0], in1[v_i0, v_i1])
                T.writes(out[v_i0, v_i1])
                out[v_i0, v_i1] = in0[v_i0] / T.float32(64.0) * in1[v_i0, v_i1] * T.float32(-1.0)

    @T.prim_func(s_tir=True)
    def conv2d_nchw(in0: T.Buffer((64, 1, 32, 32), "float32"), in1: T.Buffer((6, 1, 5, 5), "float32"), out: T.Buffer((64, 6, 28, 28), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0, i1, i2, i3, rc, ry, rx in T.grid(64, 6, 28, 28, 1, 5, 5):
            with T.sblock("out"):
                v_i0, v_i1, v_i2, v_i3, v_rc, v_ry, v_rx = T.axis.remap("SSSSRRR", [i0, i1, i2, i3, rc, ry, rx])
                T.reads(in0[v_i0, v_rc, v_i2 + v_ry, v_i3 + v_rx], in1[v_i1, v_rc, v_ry, v_rx])
                T.writes(out[v_i0, v_i1, v_i2, v_i3])
                with T.init():
                    out[v_i0, v_i1, v_i2, v_i3] = T.float32(0.0)
                out[v_i0, v_i1, v_i2, v_i3] = out[v_i0, v_i1, v_i2, v_i3] + in0[v_i0, v_rc, v_i2 + v_ry, v_i3 + v_rx] * in1[v_i1, v_rc, v_ry, v_rx]

    @T.prim_func(s_tir=True)
    def conv2d_nchw1(in0: T.Buffer((64, 6, 14, 14), "float32"), in1: T.Buffer((16, 6, 5, 5), "float32"), out: T.Buffer((64, 16, 10, 10), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0, i1, i2, i3, rc, ry, rx in T.grid(64, 16, 10, 10, 6, 5, 5):
            with T.sblock("out"):
                v_i0, v_i1, v_i2, v_i3, v_rc, v_ry, v_rx = T.axis.remap("SSSSRRR", [i0, i1, i2, i3, rc, ry, rx])
                T.reads(in0[v_i0, v_rc, v_i2 + v_ry, v_i3 + v_rx], in1[v_i1, v_rc, v_ry, v_rx])
                T.writes(out[v_i0, v_i1, v_i2, v_i3])
                with T.init():
                    out[v_i0, v_i1, v_i2, v_i3] = T.float32(0.0)
                out[v_i0, v_i1, v_i2, v_i3] = out[v_i0, v_i1, v_i2, v_i3] + in0[v_i0, v_rc, v_i2 + v_ry, v_i3 + v_rx] * in1[v_i1, v_rc, v_ry, v_rx]

    @T.prim_func(s_tir=True)
    def conv2d_nchw_by_relu(in0: T.Buffer((64, 16, 10, 10), "float32"), in1: T.Buffer((16,), "float32"), in2: T.Buffer((64, 16, 10, 10), "float32"), out: T.Buffer((64, 16, 10, 10), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0, i1, i2, i3 in T.grid(64, 16, 10, 10):
            with T.sblock("out"):
                v_i0, v_i1, v_i2, v_i3 = T.axis.remap("SSSS", [i0, i1, i2, i3])
                T.reads(in0[v_i0, v_i1, v_i2, v_i3], in1[v_i1], in2[v_i0, v_i1, v_i2, v_i3])
                T.writes(out[v_i0, v_i1, v_i2, v_i3])
                out[v_i0, v_i1, v_i2, v_i3] = T.Select(T.float32(0.0) < in0[v_i0, v_i1, v_i2, v_i3] + in1[v_i1], in2[v_i0, v_i1, v_i2, v_i3], T.float32(0.0))

    @T.prim_func(s_tir=True)
    def conv2d_nchw_by_relu1(in0: T.Buffer((64, 6, 28, 28), "float32"), in1: T.Buffer((6,), "float32"), in2: T.Buffer((64, 6, 28, 28), "float32"), out: T.Buffer((64, 6, 28, 28), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0, i1, i2, i3 in T.grid(64, 6, 28, 28):
            with T.sblock("out"):
                v_i0, v_i1, v_i2, v_i3 = T.axis.remap("SSSS", [i0, i1, i2, i3])
                T.reads(in0[v_i0, v_i1, v_i2, v_i3], in1[v_i1], in2[v_i0, v_i1, v_i2, v_i3])
                T.writes(out[v_i0, v_i1, v_i2, v_i3])
                out[v_i0, v_i1, v_i2, v_i3] = T.Select(T.float32(0.0) < in0[v_i0, v_i1, v_i2, v_i3] + in1[v_i1], in2[v_i0, v_i1, v_i2, v_i3], T.float32(0.0))

    @T.prim_func(s_tir=True)
    def conv2d_nchw_by_relu_padded(in0: T.Buffer((64, 16, 10, 10), "float32"), out: T.Buffer((64, 16, 18, 18), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0, i1, i2, i3 in T.grid(64, 16, 18, 18):
            with T.sblock("out"):
                v_i0, v_i1, v_i2, v_i3 = T.axis.remap("SSSS", [i0, i1, i2, i3])
                T.reads(in0[v_i0, v_i1, v_i2 - 4, v_i3 - 4])
                T.writes(out[v_i0, v_i1, v_i2, v_i3])
                out[v_i0, v_i1, v_i2, v_i3] = T.if_then_else(4 <= v_i3 and v_i3 < 14 and 4 <= v_i2 and v_i2 < 14, in0[v_i0, v_i1, v_i2 - 4, v_i3 - 4], T.float32(0.0))

    @T.prim_func(s_tir=True)
    def dense(in0: T.Buffer((64, 400), "float32"), in1: T.Buffer((120, 400), "float32"), out: T.Buffer((64, 120), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0, i1, k in T.grid(64, 120, 400):
            with T.sblock("out"):
                v_i0, v_i1, v_k = T.axis.remap("SSR", [i0, i1, k])
                T.reads(in0[v_i0, v_k], in1[v_i1, v_k])
                T.writes(out[v_i0, v_i1])
                with T.init():
                    out[v_i0, v_i1] = T.float32(0.0)
                out[v_i0, v_i1] = out[v_i0, v_i1] + in0[v_i0, v_k] * in1[v_i1, v_k]

    @T.prim_func(s_tir=True)
    def dense1(in0: T.Buffer((64, 120), "float32"), in1: T.Buffer((84, 120), "float32"), out: T.Buffer((64, 84), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0, i1, k in T.grid(64, 84, 120):
            with T.sblock("out"):
                v_i0, v_i1, v_k = T.axis.remap("SSR", [i0, i1, k])
                T.reads(in0[v_i0, v_k], in1[v_i1, v_k])
                T.writes(out[v_i0, v_i1])
                with T.init():
                    out[v_i0, v_i1] = T.float32(0.0)
                out[v_i0, v_i1] = out[v_i0, v_i1] + in0[v_i0, v_k] * in1[v_i1, v_k]

    @T.prim_func(s_tir=True)
    def dense2(in0: T.Buffer((64, 84), "float32"), in1: T.Buffer((10, 84), "float32"), out: T.Buffer((64, 10), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0, i1, k in T.grid(64, 10, 84):
            with T.sblock("out"):
                v_i0, v_i1, v_k = T.axis.remap("SSR", [i0, i1, k])
                T.reads(in0[v_i0, v_k], in1[v_i1, v_k])
                T.writes(out[v_i0, v_i1])
                with T.init():
                    out[v_i0, v_i1] = T.float32(0.0)
                out[v_i0, v_i1] = out[v_i0, v_i1] + in0[v_i0, v_k] * in1[v_i1, v_k]

    @T.prim_func(s_tir=True)
    def dense_by_biased(in0: T.Buffer((64, 84), "float32"), out: T.Buffer((64, 84), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0, i1 in T.grid(64, 84):
            with T.sblock("out"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                T.reads(in0[v_i0, v_i1])
                T.writes(out[v_i0, v_i1])
                out[v_i0, v_i1] = in0[v_i0, v_i1]

    @T.prim_func(s_tir=True)
    def dense_by_biased1(in0: T.Buffer((64, 120), "float32"), out: T.Buffer((64, 120), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0, i1 in T.grid(64, 120):
            with T.sblock("out"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                T.reads(in0[v_i0, v_i1])
                T.writes(out[v_i0, v_i1])
                out[v_i0, v_i1] = in0[v_i0, v_i1]

    @T.prim_func(s_tir=True)
    def head(out: T.Buffer((64,), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0 in range(64):
            with T.sblock("out"):
                v_i0 = T.axis.spatial(64, i0)
                T.reads()
                T.writes(out[v_i0])
                out[v_i0] = T.float32(1.0)

    @T.prim_func(s_tir=True)
    def loss(in0: T.Buffer((64, 10), "float32"), in1: T.Buffer((64, 10), "float32"), out: T.Buffer((64,), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0, kind in T.grid(64, 10):
            with T.sblock("out"):
                v_i0, v_kind = T.axis.remap("SR", [i0, kind])
                T.reads(in0[v_i0, v_kind], in1[v_i0, v_kind])
                T.writes(out[v_i0])
                with T.init():
                    out[v_i0] = T.float32(0.0)
                out[v_i0] = out[v_i0] + in0[v_i0, v_kind] * T.float32(-1.0) * in1[v_i0, v_kind] / T.float32(64.0)

    @T.prim_func(s_tir=True)
    def pad_temp(in0: T.Buffer((64, 1, 28, 28), "float32"), out: T.Buffer((64, 1, 32, 32), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0, i1, i2, i3 in T.grid(64, 1, 32, 32):
            with T.sblock("out"):
                v_i0, v_i1, v_i2, v_i3 = T.axis.remap("SSSS", [i0, i1, i2, i3])
                T.reads(in0[v_i0, v_i1, v_i2 - 2, v_i3 - 2])
                T.writes(out[v_i0, v_i1, v_i2, v_i3])
                out[v_i0, v_i1, v_i2, v_i3] = T.if_then_else(2 <= v_i2 and v_i2 < 30 and 2 <= v_i3 and v_i3 < 30, in0[v_i0, v_i1, v_i2 - 2, v_i3 - 2], T.float32(0.0))

    @T.prim_func(s_tir=True)
    def pad_temp1(in0: T.Buffer((64, 6, 14, 14), "float32"), out: T.Buffer((64, 6, 14, 14), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0, i1, i2, i3 in T.grid(64, 6, 14, 14):
            with T.sblock("out"):
                v_i0, v_i1, v_i2, v_i3 = T.axis.remap("SSSS", [i0, i1, i2, i3])
                T.reads(in0[v_i0, v_i1, v_i2, v_i3])
                T.writes(out[v_i0, v_i1, v_i2, v_i3])
                out[v_i0, v_i1, v_i2, v_i3] = in0[v_i0, v_i1, v_i2, v_i3]

    @T.prim_func(s_tir=True)
    def pad_temp_by_conv2d_nchw(in0: T.Buffer((64, 16, 18, 18), "float32"), in1: T.Buffer((16, 6, 5, 5), "float32"), out: T.Buffer((64, 6, 14, 14), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0, i1, i2, i3, ff, ry, rx in T.grid(64, 6, 14, 14, 16, 5, 5):
            with T.sblock("out"):
                v_i0, v_i1, v_i2, v_i3, v_ff, v_ry, v_rx = T.axis.remap("SSSSRRR", [i0, i1, i2, i3, ff, ry, rx])
                T.reads(in0[v_i0, v_ff, v_i2 + 4 - v_ry, v_i3 + 4 - v_rx], in1[v_ff, v_i1, v_ry, v_rx])
                T.writes(out[v_i0, v_i1, v_i2, v_i3])
                with T.init():
                    out[v_i0, v_i1, v_i2, v_i3] = T.float32(0.0)
                out[v_i0, v_i1, v_i2, v_i3] = out[v_i0, v_i1, v_i2, v_i3] + in0[v_i0, v_ff, v_i2 + 4 - v_ry, v_i3 + 4 - v_rx] * in1[v_ff, v_i1, v_ry, v_rx]

    @T.prim_func(s_tir=True)
    def pool_max(in0: T.Buffer((64, 6, 28, 28), "float32"), out: T.Buffer((64, 6, 14, 14), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0, i1, i2, i3, rv0, rv1 in T.grid(64, 6, 14, 14, 2, 2):
            with T.sblock("out"):
                v_i0, v_i1, v_i2, v_i3, v_rv0, v_rv1 = T.axis.remap("SSSSRR", [i0, i1, i2, i3, rv0, rv1])
                T.reads(in0[v_i0, v_i1, v_i2 * 2 + v_rv0, v_i3 * 2 + v_rv1])
                T.writes(out[v_i0, v_i1, v_i2, v_i3])
                with T.init():
                    out[v_i0, v_i1, v_i2, v_i3] = T.float32(-340282346638528859811704183484516925440.0)
                out[v_i0, v_i1, v_i2, v_i3] = T.max(out[v_i0, v_i1, v_i2, v_i3], in0[v_i0, v_i1, v_i2 * 2 + v_rv0, v_i3 * 2 + v_rv1])

    @T.prim_func(s_tir=True)
    def pool_max1(in0: T.Buffer((64, 16, 10, 10), "float32"), out: T.Buffer((64, 16, 5, 5), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0, i1, i2, i3, rv0, rv1 in T.grid(64, 16, 5, 5, 2, 2):
            with T.sblock("out"):
                v_i0, v_i1, v_i2, v_i3, v_rv0, v_rv1 = T.axis.remap("SSSSRR", [i0, i1, i2, i3, rv0, rv1])
                T.reads(in0[v_i0, v_i1, v_i2 * 2 + v_rv0, v_i3 * 2 + v_rv1])
                T.writes(out[v_i0, v_i1, v_i2, v_i3])
                with T.init():
                    out[v_i0, v_i1, v_i2, v_i3] = T.float32(-340282346638528859811704183484516925440.0)
                out[v_i0, v_i1, v_i2, v_i3] = T.max(out[v_i0, v_i1, v_i2, v_i3], in0[v_i0, v_i1, v_i2 * 2 + v_rv0, v_i3 * 2 + v_rv1])

    @T.prim_func(s_tir=True)
    def pool_max_by_compute(in0: T.Buffer((64, 400), "float32"), out: T.Buffer((64, 16, 5, 5), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0, i1, i2, i3 in T.grid(64, 16, 5, 5):
            with T.sblock("out"):
                v_i0, v_i1, v_i2, v_i3 = T.axis.remap("SSSS", [i0, i1, i2, i3])
                T.reads(in0[v_i0, v_i1 * 25 + v_i2 * 5 + v_i3])
                T.writes(out[v_i0, v_i1, v_i2, v_i3])
                out[v_i0, v_i1, v_i2, v_i3] = in0[v_i0, v_i1 * 25 + v_i2 * 5 + v_i3]

    @T.prim_func(s_tir=True)
    def pool_max_equal(in0: T.Buffer((64, 16, 10, 10), "float32"), in1: T.Buffer((64, 16, 5, 5), "float32"), out: T.Buffer((64, 16, 5, 5), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0, i1, i2, i3, rv0, rv1 in T.grid(64, 16, 5, 5, 2, 2):
            with T.sblock("out"):
                v_i0, v_i1, v_i2, v_i3, v_rv0, v_rv1 = T.axis.remap("SSSSRR", [i0, i1, i2, i3, rv0, rv1])
                T.reads(in0[v_i0, v_i1, v_i2 * 2 + v_rv0, v_i3 * 2 + v_rv1], in1[v_i0, v_i1, v_i2, v_i3])
                T.writes(out[v_i0, v_i1, v_i2, v_i3])
                with T.init():
                    out[v_i0, v_i1, v_i2, v_i3] = T.float32(0.0)
                out[v_i0, v_i1, v_i2, v_i3] = out[v_i0, v_i1, v_i2, v_i3] + T.Select(in0[v_i0, v_i1, v_i2 * 2 + v_rv0, v_i3 * 2 + v_rv1] == in1[v_i0, v_i1, v_i2, v_i3], T.float32(1.0), T.float32(0.0))

    @T.prim_func(s_tir=True)
    def pool_max_equal1(in0: T.Buffer((64, 6, 28, 28), "float32"), in1: T.Buffer((64, 6, 14, 14), "float32"), out: T.Buffer((64, 6, 14, 14), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0, i1, i2, i3, rv0, rv1 in T.grid(64, 6, 14, 14, 2, 2):
            with T.sblock("out"):
                v_i0, v_i1, v_i2, v_i3, v_rv0, v_rv1 = T.axis.remap("SSSSRR", [i0, i1, i2, i3, rv0, rv1])
                T.reads(in0[v_i0, v_i1, v_i2 * 2 + v_rv0, v_i3 * 2 + v_rv1], in1[v_i0, v_i1, v_i2, v_i3])
                T.writes(out[v_i0, v_i1, v_i2, v_i3])
                with T.init():
                    out[v_i0, v_i1, v_i2, v_i3] = T.float32(0.0)
                out[v_i0, v_i1, v_i2, v_i3] = out[v_i0, v_i1, v_i2, v_i3] + T.Select(in0[v_i0, v_i1, v_i2 * 2 + v_rv0, v_i3 * 2 + v_rv1] == in1[v_i0, v_i1, v_i2, v_i3], T.float32(1.0), T.float32(0.0))

    @T.prim_func(s_tir=True)
    def pool_max_share(in0: T.Buffer((64, 16, 5, 5), "float32"), in1: T.Buffer((64, 16, 5, 5), "float32"), out: T.Buffer((64, 16, 5, 5), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0, i1, i2, i3 in T.grid(64, 16, 5, 5):
            with T.sblock("out"):
                v_i0, v_i1, v_i2, v_i3 = T.axis.remap("SSSS", [i0, i1, i2, i3])
                T.reads(in0[v_i0, v_i1, v_i2, v_i3], in1[v_i0, v_i1, v_i2, v_i3])
                T.writes(out[v_i0, v_i1, v_i2, v_i3])
                out[v_i0, v_i1, v_i2, v_i3] = in0[v_i0, v_i1, v_i2, v_i3] / in1[v_i0, v_i1, v_i2, v_i3]

    @T.prim_func(s_tir=True)
    def pool_max_share1(in0: T.Buffer((64, 6, 14, 14), "float32"), in1: T.Buffer((64, 6, 14, 14), "float32"), out: T.Buffer((64, 6, 14, 14), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0, i1, i2, i3 in T.grid(64, 6, 14, 14):
            with T.sblock("out"):
                v_i0, v_i1, v_i2, v_i3 = T.axis.remap("SSSS", [i0, i1, i2, i3])
                T.reads(in0[v_i0, v_i1, v_i2, v_i3], in1[v_i0, v_i1, v_i2, v_i3])
                T.writes(out[v_i0, v_i1, v_i2, v_i3])
                out[v_i0, v_i1, v_i2, v_i3] = in0[v_i0, v_i1, v_i2, v_i3] / in1[v_i0, v_i1, v_i2, v_i3]

    @T.prim_func(s_tir=True)
    def relu(in0: T.Buffer((64, 6, 28, 28), "float32"), in1: T.Buffer((6,), "float32"), out: T.Buffer((64, 6, 28, 28), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0, i1, i2, i3 in T.grid(64, 6, 28, 28):
            with T.sblock("out"):
                v_i0, v_i1, v_i2, v_i3 = T.axis.remap("SSSS", [i0, i1, i2, i3])
                T.reads(in0[v_i0, v_i1, v_i2, v_i3], in1[v_i1])
                T.writes(out[v_i0, v_i1, v_i2, v_i3])
                out[v_i0, v_i1, v_i2, v_i3] = T.max(in0[v_i0, v_i1, v_i2, v_i3] + in1[v_i1], T.float32(0.0))

    @T.prim_func(s_tir=True)
    def relu1(in0: T.Buffer((64, 16, 10, 10), "float32"), in1: T.Buffer((16,), "float32"), out: T.Buffer((64, 16, 10, 10), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0, i1, i2, i3 in T.grid(64, 16, 10, 10):
            with T.sblock("out"):
                v_i0, v_i1, v_i2, v_i3 = T.axis.remap("SSSS", [i0, i1, i2, i3])
                T.reads(in0[v_i0, v_i1, v_i2, v_i3], in1[v_i1])
                T.writes(out[v_i0, v_i1, v_i2, v_i3])
                out[v_i0, v_i1, v_i2, v_i3] = T.max(in0[v_i0, v_i1, v_i2, v_i3] + in1[v_i1], T.float32(0.0))

    @T.prim_func(s_tir=True)
    def relu_by_pool_max(in0: T.Buffer((64, 16, 10, 10), "float32"), in1: T.Buffer((64, 16, 5, 5), "float32"), in2: T.Buffer((64, 16, 5, 5), "float32"), out: T.Buffer((64, 16, 10, 10), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0, i1, i2, i3 in T.grid(64, 16, 10, 10):
            with T.sblock("out"):
                v_i0, v_i1, v_i2, v_i3 = T.axis.remap("SSSS", [i0, i1, i2, i3])
                T.reads(in0[v_i0, v_i1, v_i2, v_i3], in1[v_i0, v_i1, v_i2 // 2, v_i3 // 2], in2[v_i0, v_i1, v_i2 // 2, v_i3 // 2])
                T.writes(out[v_i0, v_i1, v_i2, v_i3])
                out[v_i0, v_i1, v_i2, v_i3] = T.Select(in0[v_i0, v_i1, v_i2, v_i3] == in1[v_i0, v_i1, v_i2 // 2, v_i3 // 2], in2[v_i0, v_i1, v_i2 // 2, v_i3 // 2], T.float32(0.0))

    @T.prim_func(s_tir=True)
    def relu_by_pool_max1(in0: T.Buffer((64, 6, 28, 28), "float32"), in1: T.Buffer((64, 6, 14, 14), "float32"), in2: T.Buffer((64, 6, 14, 14), "float32"), out: T.Buffer((64, 6, 28, 28), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0, i1, i2, i3 in T.grid(64, 6, 28, 28):
            with T.sblock("out"):
                v_i0, v_i1, v_i2, v_i3 = T.axis.remap("SSSS", [i0, i1, i2, i3])
                T.reads(in0[v_i0, v_i1, v_i2, v_i3], in1[v_i0, v_i1, v_i2 // 2, v_i3 // 2], in2[v_i0, v_i1, v_i2 // 2, v_i3 // 2])
                T.writes(out[v_i0, v_i1, v_i2, v_i3])
                out[v_i0, v_i1, v_i2, v_i3] = T.Select(in0[v_i0, v_i1, v_i2, v_i3] == in1[v_i0, v_i1, v_i2 // 2, v_i3 // 2], in2[v_i0, v_i1, v_i2 // 2, v_i3 // 2], T.float32(0.0))

    @T.prim_func(s_tir=True)
    def weight1_by_conv2d_nchw(in0: T.Buffer((64, 6, 28, 28), "float32"), in1: T.Buffer((64, 1, 32, 32), "float32"), out: T.Buffer((6, 1, 5, 5), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0, i1, i2, i3, nn, yy, xx in T.grid(6, 1, 5, 5, 64, 28, 28):
            with T.sblock("out"):
                v_i0, v_i1, v_i2, v_i3, v_nn, v_yy, v_xx = T.axis.remap("SSSSRRR", [i0, i1, i2, i3, nn, yy, xx])
                T.reads(in0[v_nn, v_i0, v_yy, v_xx], in1[v_nn, 0, v_yy + v_i2, v_xx + v_i3])
                T.writes(out[v_i0, v_i1, v_i2, v_i3])
                with T.init():
                    out[v_i0, v_i1, v_i2, v_i3] = T.float32(0.0)
                out[v_i0, v_i1, v_i2, v_i3] = out[v_i0, v_i1, v_i2, v_i3] + in0[v_nn, v_i0, v_yy, v_xx] * in1[v_nn, 0, v_yy + v_i2, v_xx + v_i3]

    @T.prim_func(s_tir=True)
    def weight2_by_conv2d_nchw(in0: T.Buffer((64, 16, 10, 10), "float32"), in1: T.Buffer((64, 6, 14, 14), "float32"), out: T.Buffer((16, 6, 5, 5), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0, i1, i2, i3, nn, yy, xx in T.grid(16, 6, 5, 5, 64, 10, 10):
            with T.sblock("out"):
                v_i0, v_i1, v_i2, v_i3, v_nn, v_yy, v_xx = T.axis.remap("SSSSRRR", [i0, i1, i2, i3, nn, yy, xx])
                T.reads(in0[v_nn, v_i0, v_yy, v_xx], in1[v_nn, v_i1, v_yy + v_i2, v_xx + v_i3])
                T.writes(out[v_i0, v_i1, v_i2, v_i3])
                with T.init():
                    out[v_i0, v_i1, v_i2, v_i3] = T.float32(0.0)
                out[v_i0, v_i1, v_i2, v_i3] = out[v_i0, v_i1, v_i2, v_i3] + in0[v_nn, v_i0, v_yy, v_xx] * in1[v_nn, v_i1, v_yy + v_i2, v_xx + v_i3]

    @T.prim_func(s_tir=True)
    def weight3_by_dense(in0: T.Buffer((64, 120), "float32"), in1: T.Buffer((64, 400), "float32"), out: T.Buffer((120, 400), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0, i1, n in T.grid(120, 400, 64):
            with T.sblock("out"):
                v_i0, v_i1, v_n = T.axis.remap("SSR", [i0, i1, n])
                T.reads(in0[v_n, v_i0], in1[v_n, v_i1])
                T.writes(out[v_i0, v_i1])
                with T.init():
                    out[v_i0, v_i1] = T.float32(0.0)
                out[v_i0, v_i1] = out[v_i0, v_i1] + in0[v_n, v_i0] * in1[v_n, v_i1]

    @T.prim_func(s_tir=True)
    def weight4_by_dense(in0: T.Buffer((64, 84), "float32"), in1: T.Buffer((64, 120), "float32"), out: T.Buffer((84, 120), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0, i1, n in T.grid(84, 120, 64):
            with T.sblock("out"):
                v_i0, v_i1, v_n = T.axis.remap("SSR", [i0, i1, n])
                T.reads(in0[v_n, v_i0], in1[v_n, v_i1])
                T.writes(out[v_i0, v_i1])
                with T.init():
                    out[v_i0, v_i1] = T.float32(0.0)
                out[v_i0, v_i1] = out[v_i0, v_i1] + in0[v_n, v_i0] * in1[v_n, v_i1]

    @T.prim_func(s_tir=True)
    def weight5_by_dense(in0: T.Buffer((64, 10), "float32"), in1: T.Buffer((64, 84), "float32"), out: T.Buffer((10, 84), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        # with T.sblock("root"):
        for i0, i1, n in T.grid(10, 84, 64):
            with T.sblock("out"):
                v_i0, v_i1, v_n = T.axis.remap("SSR", [i0, i1, n])
                T.reads(in0[v_n, v_i0], in1[v_n, v_i1])
                T.writes(out[v_i0, v_i1])
                with T.init():
                    out[v_i0, v_i1] = T.float32(0.0)
                out[v_i0, v_i1] = out[v_i0, v_i1] + in0[v_n, v_i0] * in1[v_n, v_i1]

    @R.function
    def main(images: R.Tensor((64, 1, 28, 28), dtype="float32"), labels: R.Tensor((64, 10), dtype="float32"), weight1: R.Tensor((6, 1, 5, 5), dtype="float32"), bias1: R.Tensor((6,), dtype="float32"), weight2: R.Tensor((16, 6, 5, 5), dtype="float32"), bias2: R.Tensor((16,), dtype="float32"), weight3: R.Tensor((120, 400), dtype="float32"), bias3: R.Tensor((120,), dtype="float32"), weight4: R.Tensor((84, 120), dtype="float32"), bias4: R.Tensor((84,), dtype="float32"), weight5: R.Tensor((10, 84), dtype="float32"), bias5: R.Tensor((10,), dtype="float32")) -> R.Tuple(R.Tensor((64,), dtype="float32"), R.Tensor((6, 1, 5, 5), dtype="float32"), R.Tensor((6,), dtype="float32"), R.Tensor((16, 6, 5, 5), dtype="float32"), R.Tensor((16,), dtype="float32"), R.Tensor((120, 400), dtype="float32"), R.Tensor((120,), dtype="float32"), R.Tensor((84, 120), dtype="float32"), R.Tensor((84,), dtype="float32"), R.Tensor((10, 84), dtype="float32"), R.Tensor((10,), dtype="float32")):
        R.func_attr({"num_input": 12})
        cls = Module
        with R.dataflow():
            lv = R.call_tir(cls.pad_temp, (images,), out_ty=R.Tensor((64, 1, 32, 32), dtype="float32"))
            lv1 = R.call_tir(cls.conv2d_nchw, (lv, weight1), out_ty=R.Tensor((64, 6, 28, 28), dtype="float32"))
            lv2 = R.call_tir(cls.relu, (lv1, bias1), out_ty=R.Tensor((64, 6, 28, 28), dtype="float32"))
            lv3 = R.call_tir(cls.pool_max, (lv2,), out_ty=R.Tensor((64, 6, 14, 14), dtype="float32"))
            lv4 = R.call_tir(cls.pad_temp1, (lv3,), out_ty=R.Tensor((64, 6, 14, 14), dtype="float32"))
            lv5 = R.call_tir(cls.conv2d_nchw1, (lv4, weight2), out_ty=R.Tensor((64, 16, 10, 10), dtype="float32"))
            lv6 = R.call_tir(cls.relu1, (lv5, bias2), out_ty=R.Tensor((64, 16, 10, 10), dtype="float32"))
            lv7 = R.call_tir(cls.pool_max1, (lv6,), out_ty=R.Tensor((64, 16, 5, 5), dtype="float32"))
            lv8 = R.call_tir(cls.compute, (lv7,), out_ty=R.Tensor((64, 400), dtype="float32"))
            lv9 = R.call_tir(cls.dense, (lv8, weight3), out_ty=R.Tensor((64, 120), dtype="float32"))
            lv10 = R.call_tir(cls.biased, (lv9, bias3), out_ty=R.Tensor((64, 120), dtype="float32"))
            lv11 = R.call_tir(cls.compute1, (lv10,), out_ty=R.Tensor((64, 120), dtype="float32"))
            lv12 = R.call_tir(cls.dense1, (lv11, weight4), out_ty=R.Tensor((64, 84), dtype="float32"))
            lv13 = R.call_tir(cls.biased1, (lv12, bias4), out_ty=R.Tensor((64, 84), dtype="float32"))
            lv14 = R.call_tir(cls.compute2, (lv13,), out_ty=R.Tensor((64, 84), dtype="float32"))
            lv15 = R.call_tir(cls.dense2, (lv14, weight5), out_ty=R.Tensor((64, 10), dtype="float32"))
            lv16 = R.call_tir(cls.biased2, (lv15, bias5), out_ty=R.Tensor((64, 10), dtype="float32"))
            lv17 = R.call_tir(cls.T_softmax_maxelem, (lv16,), out_ty=R.Tensor((64,), dtype="float32"))
            lv18 = R.call_tir(cls.compute3, (lv16, lv17), out_ty=R.Tensor((64,), dtype="float32"))
            lv19 = R.call_tir(cls.compute4, (lv16, lv17, lv18), out_ty=R.Tensor((64, 10), dtype="float32"))
            lv20 = R.call_tir(cls.loss, (lv19, labels), out_ty=R.Tensor((64,), dtype="float32"))
            lv21 = R.call_tir(cls.head, R.tuple(), out_ty=R.Tensor((64,), dtype="float32"))
            lv22 = R.call_tir(cls.compute_by_loss, (lv21, labels), out_ty=R.Tensor((64, 10), dtype="float32"))
            lv23 = R.call_tir(cls.biased_by_compute, (lv22,), out_ty=R.Tensor((64, 10), dtype="float32"))
            lv24 = R.call_tir(cls.compute_by_compute, (lv22, lv18), out_ty=R.Tensor((64,), dtype="float32"))
            lv25 = R.call_tir(cls.biased_by_compute1, (lv24, lv16, lv17), out_ty=R.Tensor((64, 10), dtype="float32"))
            lv26 = R.call_tir(cls.T_softmax_maxelem_by_compute, (lv22,), out_ty=R.Tensor((64,), dtype="float32"))
            lv27 = R.call_tir(cls.T_softmax_maxelem_by_compute1, (lv24, lv16, lv17), out_ty=R.Tensor((64,), dtype="float32"))
            lv28 = R.call_tir(cls.T_softmax_maxelem_adjoint, (lv26, lv27), out_ty=R.Tensor((64,), dtype="float32"))
            lv29 = R.call_tir(cls.T_softmax_maxelem_equal, (lv16, lv17), out_ty=R.Tensor((64,), dtype="float32"))
            lv30 = R.call_tir(cls.T_softmax_maxelem_share, (lv28, lv29), out_ty=R.Tensor((64,), dtype="float32"))
            lv31 = R.call_tir(cls.biased_by_T_softmax_maxelem, (lv16, lv17, lv30), out_ty=R.Tensor((64, 10), dtype="float32"))
            lv32 = R.call_tir(cls.biased_adjoint, (lv23, lv25, lv31), out_ty=R.Tensor((64, 10), dtype="float32"))
            lv33 = R.call_tir(cls.biased_by_compute, (lv32,), out_ty=R.Tensor((64, 10), dtype="float32"))
            lv34 = R.call_tir(cls.compute_by_dense, (lv33, weight5), out_ty=R.Tensor((64, 84), dtype="float32"))
            lv35 = R.call_tir(cls.biased_by_compute2, (lv13, lv34), out_ty=R.Tensor((64, 84), dtype="float32"))
            lv36 = R.call_tir(cls.dense_by_biased, (lv35,), out_ty=R.Tensor((64, 84), dtype="float32"))
            lv37 = R.call_tir(cls.compute_by_dense1, (lv36, weight4), out_ty=R.Tensor((64, 120), dtype="float32"))
            lv38 = R.call_tir(cls.biased_by_compute3, (lv10, lv37), out_ty=R.Tensor((64, 120), dtype="float32"))
            lv39 = R.call_tir(cls.dense_by_biased1, (lv38,), out_ty=R.Tensor((64, 120), dtype="float32"))
            lv40 = R.call_tir(cls.compute_by_dense2, (lv39, weight3), out_ty=R.Tensor((64, 400), dtype="float32"))
            lv41 = R.call_tir(cls.pool_max_by_compute, (lv40,), out_ty=R.Tensor((64, 16, 5, 5), dtype="float32"))
            lv42 = R.call_tir(cls.pool_max_equal, (lv6, lv7), out_ty=R.Tensor((64, 16, 5, 5), dtype="float32"))
            lv43 = R.call_tir(cls.pool_max_share, (lv41, lv42), out_ty=R.Tensor((64, 16, 5, 5), dtype="float32"))
            lv44 = R.call_tir(cls.relu_by_pool_max, (lv6, lv7, lv43), out_ty=R.Tensor((64, 16, 10, 10), dtype="float32"))
            lv45 = R.call_tir(cls.conv2d_nchw_by_relu, (lv5, bias2, lv44), out_ty=R.Tensor((64, 16, 10, 10), dtype="float32"))
            lv46 = R.call_tir(cls.conv2d_nchw_by_relu_padded, (lv45,), out_ty=R.Tensor((64, 16, 18, 18), dtype="float32"))
            lv47 = R.call_tir(cls.pad_temp_by_conv2d_nchw, (lv46, weight2), out_ty=R.Tensor((64, 6, 14, 14), dtype="float32"))
            lv48 = R.call_tir(cls.pad_temp1, (lv47,), out_ty=R.Tensor((64, 6, 14, 14), dtype="float32"))
            lv49 = R.call_tir(cls.pool_max_equal1, (lv2, lv3), out_ty=R.Tensor((64, 6, 14, 14), dtype="float32"))
            lv50 = R.call_tir(cls.pool_max_share1, (lv48, lv49), out_ty=R.Tensor((64, 6, 14, 14), dtype="float32"))
            lv51 = R.call_tir(cls.relu_by_pool_max1, (lv2, lv3, lv50), out_ty=R.Tensor((64, 6, 28, 28), dtype="float32"))
            lv52 = R.call_tir(cls.conv2d_nchw_by_relu1, (lv1, bias1, lv51), out_ty=R.Tensor((64, 6, 28, 28), dtype="float32"))
            lv53 = R.call_tir(cls.weight1_by_conv2d_nchw, (lv52, lv), out_ty=R.Tensor((6, 1, 5, 5), dtype="float32"))
            lv54 = R.call_tir(cls.bias1_by_relu, (lv1, bias1, lv51), out_ty=R.Tensor((6,), dtype="float32"))
            lv55 = R.call_tir(cls.weight2_by_conv2d_nchw, (lv45, lv4), out_ty=R.Tensor((16, 6, 5, 5), dtype="float32"))
            lv56 = R.call_tir(cls.bias2_by_relu, (lv5, bias2, lv44), out_ty=R.Tensor((16,), dtype="float32"))
            lv57 = R.call_tir(cls.weight3_by_dense, (lv39, lv8), out_ty=R.Tensor((120, 400), dtype="float32"))
            lv58 = R.call_tir(cls.bias3_by_biased, (lv38,), out_ty=R.Tensor((120,), dtype="float32"))
            lv59 = R.call_tir(cls.weight4_by_dense, (lv36, lv11), out_ty=R.Tensor((84, 120), dtype="float32"))
            lv60 = R.call_tir(cls.bias4_by_biased, (lv35,), out_ty=R.Tensor((84,), dtype="float32"))
            lv61 = R.call_tir(cls.weight5_by_dense, (lv33, lv14), out_ty=R.Tensor((10, 84), dtype="float32"))
            lv62 = R.call_tir(cls.bias5_by_biased, (lv32,), out_ty=R.Tensor((10,), dtype="float32"))
            gv: R.Tuple(R.Tensor((64,), dtype="float32"), R.Tensor((6, 1, 5, 5), dtype="float32"), R.Tensor((6,), dtype="float32"), R.Tensor((16, 6, 5, 5), dtype="float32"), R.Tensor((16,), dtype="float32"), R.Tensor((120, 400), dtype="float32"), R.Tensor((120,), dtype="float32"), R.Tensor((84, 120), dtype="float32"), R.Tensor((84,), dtype="float32"), R.Tensor((10, 84), dtype="float32"), R.Tensor((10,), dtype="float32")) = lv20, lv53, lv54, lv55, lv56, lv57, lv58, lv59, lv60, lv61, lv62
            R.output(gv)
        return gv
