"""Recurrent layers as one PrimFunc: what a layer computes, and its plain loops.

`form` says all that a layer depends on, `cells` has the arithmetic of LSTM, GRU and the simple
recurrent network, and `plain` writes the loops that define the result. A template writes fast ones
for the same form.

The products of the inputs are no part of it. They do not wait for the step before, so they are one
matrix product for all steps, in a function of its own:

    x = inputs @ W + bias                          # [steps, batch, directions * gates * hidden]
    for step in range(steps):
        sums = x[step] + h @ R                     # one column a gate and hidden unit
        c = f(sums) * c + i(sums) * g(sums)        # an LSTM
        h = o(sums) * tanh(c)
"""
