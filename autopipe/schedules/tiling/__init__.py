"""Tilings of contractions (convolution, dense layer, matrix product) and windows.

`form` recognizes the function, `lines` picks the two axes that a tile spans, `tile` has the knobs
and all their settings, `promise` estimates the time of a setting. `nest` numbers the tiles,
`packing` copies the weights into the order of the tiles, `padding` writes the border of an image,
`tile_levels` lists the smaller tiles for dynamic sizes, and `loops` writes the code of a tile. The
template `templates/contraction.py` puts these together.
`bands` is separate: it writes the loops of attention for its template. So are the modules for AMX
tiles: `tile_blocks` has the knobs and estimates, `tile_registers` assigns the registers,
`tile_places` locates blocks, `tile_kernel` multiplies, and `tile_pipeline` writes the loops.

Example: a dense layer of 112 rows, 64 terms and 96 columns, in tiles of 6 x 32 outputs.

    for i, j in grid(112, 96):                 # before: every sum goes through memory
        for k in range(64):
            y[i, j] += x[i, k] * w[k, j]

    for job in range(57):                      # after: 3 strips of columns x 19 bands of rows
        band, strip = job % 19, job // 19
        row = min(band * 6, 106)               # the last band overlaps: 106..111, not 108..113
        sums = zeros(6, 32)                    # 12 registers of 16 floats
        for k in range(64):
            for r, c in unrolled(6, 32):
                sums[r, c] += x[row + r, k] * packed[strip, k, c]
        for r, c in unrolled(6, 32):
            y[row + r, strip * 32 + c] = relu(sums[r, c])
"""
