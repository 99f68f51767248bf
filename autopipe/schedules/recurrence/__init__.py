"""Fast loops of recurrent layers: tiles of hidden units, with the sums of their gates in registers.

`blocking` has the knobs, all their settings, and an estimate of their time. `packing` packs the
recurrent weights in the order of the tiles, `functions` has the activation functions of gates,
`loops` writes the loops of a setting, and `tile` the body of a tile. The template
`templates/recurrence.py` combines them.

Example: the steps of an LSTM of 64 hidden units, in tiles of 16 units.

    for step in range(steps):
        for tile in range(4):
            sums = x[step, four gates, 16 units of the tile]     # registers
            for k in range(64):
                sums += h[k] * packed[tile, k, four gates, 16 units]
            c_new[tile] = f(sums) * c[tile] + i(sums) * g(sums)  # vectors
            h_new[tile] = o(sums) * tanh(c_new[tile])
        h, c = h_new, c_new                                      # double buffering
"""
