"""Recurrent layers as one PrimFunc: the parameters of a layer, and its reference loops.

`form` holds the parameters of a layer, `cells` the arithmetic of LSTM, GRU and the simple recurrent
network, and `plain` writes the loops that define the result. A template writes fast loops for the
same form.

The matmul of the inputs is not part of it. It does not depend on the previous step, so it is one
matmul for all steps, in a function of its own:

    x = inputs @ W + bias                          # [steps, batch, directions * gates * hidden]
    for step in range(steps):
        sums = x[step] + h @ R                     # one column a gate and hidden unit
        c = f(sums) * c + i(sums) * g(sums)        # an LSTM
        h = o(sums) * tanh(c)
"""
