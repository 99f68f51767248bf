"""Models with control flow, as text, with inputs to run each on."""

import numpy as np
from onnx import numpy_helper, parser

_HEAD = '<ir_version: 8, opset_import: ["": 17]>'


def parsed(text, opset=17, **weights):
    """Return a model from ONNX's text form; `weights` are arrays by name."""
    model = parser.parse_model(_HEAD.replace("17", str(opset)) + text)
    tensors = [numpy_helper.from_array(values, name) for name, values in weights.items()]
    model.graph.initializer.extend(tensors)
    return model


def normal(*shape):
    random = np.random.default_rng(sum(shape))
    return random.standard_normal(shape).astype("float32")


def watched():
    """Loops whose rounds are known while the model runs only, one of them with one inside."""
    text = """
    g (float[1,4] x, int64 n, float top)
      => (float[1,4] y, int64 k, float[1,4] z, float[1,4] v)
    {
      t = Constant<value = bool {1}>()
      zero = Constant<value = int64 {0}>()
      e = Relu(x)
      y, k = Loop(n, t, x, zero) <
        body = cell (int64 i, bool c, float[1,4] h, int64 j)
          => (bool c2, float[1,4] h2, int64 j2) {
            a = Gemm<transB = 1>(h, w, bias)
            b = Add(a, e)
            h2 = Tanh(b)
            j2 = Add(j, i)
            s = ReduceSum<keepdims = 0>(h2)
            c2 = Less(s, top)
        }>
      go = Less(zero, n)
      z = Loop("", go, x) <
        body = until (int64 i, bool c, float[1,4] h) => (bool c2, float[1,4] h2) {
            one = Constant<value = int64 {1}>()
            i1 = Add(i, one)
            c2 = Less(i1, n)
            u = Sin(h)
            h2 = Sub(u, x)
        }>
      zerof = Constant<value = float {0}>()
      start = Less(zerof, top)
      v = Loop(n, start, x) <
        body = outer (int64 i, bool c, float[1,4] h) => (bool c2, float[1,4] h2) {
            c2 = Identity(t)
            p = Cos(h)
            f = Cast<to = 1>(i)
            o = Sin(f)
            q = Add(p, o)
            h2 = Loop(n, "", q) <
              body = inner (int64 ii, bool cc, float[1,4] hh) => (bool cc2, float[1,4] hh2) {
                cc2 = Identity(cc)
                r = Add(hh, h)
                hh2 = MatMul(r, w)
              }>
        }>
    }"""
    cases = [(-3, 9), (0, 9), (1, 9), (7, 9), (9, 9), (70, 9), (70, -9), (600, 0.3)]
    inputs = [
        {"x": normal(1, 4), "n": np.array(n), "top": np.array(top, "float32")} for n, top in cases
    ]
    return parsed(text, w=normal(4, 4) / 4, bias=normal(4)), inputs


def counted():
    """A loop and a scan of eleven rounds, with rows along several axes and backwards."""
    text = """
    g (float[2,3] x, float[5,11,2] xs, float[11,3] zs)
      => (float[2,3] y, float[11,2,3] rows, float[11,3] sums,
          float[2,3] s, int64 k, float[4,11] first, float[11,3] second)
    {
      m = Constant<value = int64 {11}>()
      y, rows, sums = Loop(m, "", x) <
        body = cell (int64 i, bool c, float[2,3] h)
          => (bool c2, float[2,3] h2, float[2,3] r, float[3] q) {
            c2 = Identity(c)
            number = Cast<to = 1>(i)
            a = MatMul(h, w)
            h2 = Tanh(a)
            r = Add(h2, number)
            q = ReduceSum<keepdims = 0>(r, zero)
        }>
      three = Constant<value = int64 {3}>()
      s, k, first, second = Scan <
        num_scan_inputs = 2, scan_input_axes = [1, 0], scan_input_directions = [1, 0],
        scan_output_axes = [-1, 0], scan_output_directions = [0, 1],
        body = cell (float[2,3] h, int64 n, float[5,2] a, float[3] b)
          => (float[2,3] h2, int64 n2, float[4] p, float[3] q) {
            at = Transpose(a)
            p0 = MatMul(u, a)
            p = ReduceSum<keepdims = 0>(p0, one)
            h0 = MatMul(at, v)
            h1 = Add(h0, h)
            h2 = Sigmoid(h1)
            n2 = Add(n, n)
            q = Mul(b, b)
        }>(x, three, xs, zs)
    }"""
    weights = {
        "w": normal(3, 3), "u": normal(4, 5), "v": normal(5, 3), "zero": np.array([0]),
        "one": np.array([1]),
    }  # fmt: skip
    inputs = {"x": normal(2, 3), "xs": normal(5, 11, 2), "zs": normal(11, 3)}
    return parsed(text, **weights), [inputs]


def branches():
    """Conditions with convolutions in their branches, a loop among them."""
    text = """
    g (float[1,3,8,8] x, bool c, bool[1] d, int64 n)
      => (float[1,4,8,8] y, float[1,3,8,8] z, float[1,3,8,8] zz)
    {
      e = Relu(x)
      y = If(c) <
        then_branch = one () => (float[1,4,8,8] p) {
            border = Constant<value = int64[8] {0, 0, 1, 1, 0, 0, 1, 1}>()
            r = Pad<mode = "reflect">(e, border)
            p = Conv(r, k1, b1)
        },
        else_branch = other () => (float[1,4,8,8] q) {
            q0 = Conv(x, k2)
            q1 = Relu(q0)
            q = Conv<pads = [1,1,1,1]>(q1, k3)
        }>
      z, zz = If(d) <
        then_branch = one () => (float[1,3,8,8] p, float[1,3,8,8] p2) {
            p = Loop(n, "", x) <
              body = b (int64 i, bool cc, float[1,3,8,8] h) => (bool cc2, float[1,3,8,8] h2) {
                cc2 = Identity(cc)
                v = Conv<pads = [1,1,1,1]>(h, k4)
                h2 = If(c) <
                  then_branch = first () => (float[1,3,8,8] o1) { o1 = Tanh(v) },
                  else_branch = second () => (float[1,3,8,8] o2) { o2 = Add(v, e) }>
              }>
            p2 = Identity(e)
        },
        else_branch = other () => (float[1,3,8,8] q, float[1,3,8,8] q2) {
            q2 = Mul(e, e)
            q = Mul(two, x)
        }>
    }"""
    weights = {
        "k1": normal(4, 3, 3, 3), "b1": normal(4), "k2": normal(8, 3, 1, 1),
        "k3": normal(4, 8, 3, 3), "k4": normal(3, 3, 3, 3) / 4, "two": normal(1, 3, 1, 1),
    }  # fmt: skip
    cases = [(0, 0, 1), (1, 0, 1), (0, 1, 0), (1, 1, 3), (0, 1, 10)]
    inputs = [
        {
            "x": normal(1, 3, 8, 8),
            "c": np.array(c > 0),
            "d": np.array([d > 0]),
            "n": np.array(n),
        }
        for c, d, n in cases
    ]
    return parsed(text, **weights), inputs


def recurrent():
    """Recurrent layers in branches, in a loop whose rounds are computed, and in a scan."""
    text = """
    g (float[3,2,4] x, float[5,3,2,4] xs, int64 n, bool which)
      => (float[1,2,4] a, float[1,2,4] b, float[1,2,4] s, float[5,3,1,2,4] rows)
    {
      h0 = Constant<value = float[1,2,4] {0.1, 0.2, 0, 0, 0, -0.3, 0, 0}>()
      a = If(which) <
        then_branch = one () => (float[1,2,4] a1) {
          n1, a1 = LSTM<hidden_size = 4>(x, lw, lr)
        },
        else_branch = two () => (float[1,2,4] a2) {
          n2, a2 = GRU<hidden_size = 4>(x, gw, gr, "", "", h0)
        }>
      b = Loop(n, "", a) <
        body = cell (int64 i, bool c, float[1,2,4] h) => (bool c2, float[1,2,4] h2) {
          c2 = Identity(c)
          n3, h2 = GRU<hidden_size = 4, linear_before_reset = 1>(x, gw, gr, "", "", h)
        }>
      s, rows = Scan<num_scan_inputs = 1,
        body = steps (float[1,2,4] h, float[3,2,4] part)
          => (float[1,2,4] h2, float[3,1,2,4] row) {
          row, h2 = LSTM<hidden_size = 4>(part, lw, lr, "", "", h)
        }>(h0, xs)
    }"""
    inputs = [
        {"x": normal(3, 2, 4), "xs": normal(5, 3, 2, 4), "n": np.array(n), "which": np.array(w)}
        for n, w in ((0, True), (9, False))
    ]
    weights = {"lw": 16, "lr": 16, "gw": 12, "gr": 12}
    return parsed(text, **{name: normal(1, rows, 4) for name, rows in weights.items()}), inputs
