/* All time steps of an LSTM layer, in several directions, in one call.
 *
 * kernels.c includes this file once per float type, with REAL, NAME(name), SIGMOID and TANH defined,
 * and once with IN_BFLOAT16 defined too: then, the factors of products are rounded to bfloat16. All
 * sums have the type REAL.
 *
 * A task is one direction of a block of rows. Tasks are independent of each other, so that threads
 * meet only at the end of the layer, not at each time step: a thread that has to wait for a core
 * delays no other. The products are computed here instead of by BLAS, because weights are packed once
 * for all time steps and the cell is computed as soon as the gates of a few units are known. The sum
 * of each product runs in the same order for any number of rows, blocks and threads.
 *
 * lengths (rows) are in descending order; nothing is computed for a row from its length on.
 */

#define LANES ((int64_t)(VECTOR_BYTES / sizeof(REAL)))
#define PANEL (4 * LANES) /* columns of a packed panel: four vectors */
#define VECTOR NAME(vector)
typedef REAL VECTOR __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(REAL))));

/* A panel is a packed part of a matrix: PANEL columns, and for each of them `depth` numbers, which are
 * multiplied by a row of another matrix. AT is the place of a number in its panel. In bfloat16, pairs
 * of successive numbers of a column are adjacent, and an odd depth is rounded up. */
#ifdef IN_BFLOAT16
#define PACKED uint16_t
#define PANEL_DEPTH(depth) ((depth) + (depth) % 2)
#define AT(k, column) (((k) / 2 * PANEL + (column)) * 2 + (k) % 2)
#define ROUND(value) to_bfloat16(value)
#else
#define PACKED REAL
#define PANEL_DEPTH(depth) (depth)
#define AT(k, column) ((k) * PANEL + (column))
#define ROUND(value) (value)
#endif

/* tile (rows, PANEL) = a (rows, depth) times a panel. */
static inline __attribute__((always_inline)) void NAME(multiply)(int rows, int64_t depth,
                                                                 const REAL *restrict a,
                                                                 int64_t stride,
                                                                 const PACKED *restrict panel,
                                                                 REAL *restrict tile) {
    VECTOR sums[TILE_ROWS][4];
    _Pragma("GCC unroll 6") for (int r = 0; r < rows; r++)
        _Pragma("GCC unroll 4") for (int v = 0; v < 4; v++) sums[r][v] = (VECTOR){0};
#ifdef IN_BFLOAT16
    uint16_t part[TILE_ROWS][DEPTH];
    for (int64_t first = 0; first < depth; first += DEPTH) {
        int64_t size = least(DEPTH, depth - first);
        for (int r = 0; r < rows; r++) {
            for (int64_t k = 0; k < size; k++) part[r][k] = to_bfloat16(a[r * stride + first + k]);
            if (size % 2) part[r][size] = 0;
        }
        for (int64_t k = 0; k < size; k += 2) {
            const VECTOR *b = (const VECTOR *)(panel + (first + k) * PANEL);
            _Pragma("GCC unroll 6") for (int r = 0; r < rows; r++) {
                int32_t pair;
                memcpy(&pair, part[r] + k, sizeof pair);
                _Pragma("GCC unroll 4") for (int v = 0; v < 4; v++)
                    sums[r][v] = add_products(sums[r][v], pair, b[v]);
            }
        }
    }
#else
    for (int64_t k = 0; k < depth; k++) {
        const VECTOR *b = (const VECTOR *)(panel + k * PANEL);
        _Pragma("GCC unroll 6") for (int r = 0; r < rows; r++)
            _Pragma("GCC unroll 4") for (int v = 0; v < 4; v++)
                sums[r][v] += b[v] * a[r * stride + k];
    }
#endif
    _Pragma("GCC unroll 6") for (int r = 0; r < rows; r++)
        _Pragma("GCC unroll 4") for (int v = 0; v < 4; v++)
            ((VECTOR *)(tile + r * PANEL))[v] = sums[r][v];
}

/* The same with the number of rows, 1 to TILE_ROWS, as a constant in each branch. */
static void NAME(product)(int64_t rows, int64_t depth, const REAL *a, int64_t stride,
                          const PACKED *panel, REAL *tile) {
    switch (rows) {
    case 1: NAME(multiply)(1, depth, a, stride, panel, tile); break;
    case 2: NAME(multiply)(2, depth, a, stride, panel, tile); break;
    case 3: NAME(multiply)(3, depth, a, stride, panel, tile); break;
#if TILE_ROWS == 6
    case 4: NAME(multiply)(4, depth, a, stride, panel, tile); break;
    case 5: NAME(multiply)(5, depth, a, stride, panel, tile); break;
    case 6: NAME(multiply)(6, depth, a, stride, panel, tile); break;
#endif
    }
}

/* c (rows, n) = or += a (rows, depth) times a packed matrix. */
static void NAME(matrix_product)(int64_t rows, int64_t n, int64_t depth, const REAL *a,
                                 int64_t a_stride, const PACKED *packed, REAL *c, int64_t c_stride,
                                 int adds) {
    REAL tile[TILE_ROWS * PANEL];
    for (int64_t first = 0; first < depth; first += DEPTH) {
        int64_t part = least(DEPTH, depth - first);
        for (int64_t column = 0; column < n; column += PANEL) {
            const PACKED *panel = packed + column * PANEL_DEPTH(depth) + first * PANEL;
            int64_t columns = least(PANEL, n - column);
            for (int64_t row = 0, count; row < rows; row += count) {
                count = tile_rows(rows - row);
                NAME(product)(count, part, a + row * a_stride + first, a_stride, panel, tile);
                for (int64_t r = 0; r < count; r++) {
                    REAL *restrict out = c + (row + r) * c_stride + column;
                    const REAL *restrict in = tile + r * PANEL;
                    if (adds || first)
                        for (int64_t k = 0; k < columns; k++) out[k] += in[k];
                    else
                        memcpy(out, in, columns * sizeof(REAL));
                }
            }
        }
    }
}

/* The inputs' part of the gates i, j, f, o, before bias and activation, for some time steps. */
static void NAME(input_gates)(int64_t steps, int64_t rows, int64_t dim, int64_t depth,
                              const REAL *inputs, int64_t input_step, const PACKED *packed,
                              REAL *gates, int64_t gate_step) {
    REAL tile[TILE_ROWS * PANEL];
    if (input_step == rows * depth) rows *= steps, steps = 1; /* there are no other rows */
    for (int64_t unit = 0; unit < dim; unit += LANES) {
        int64_t units = least(LANES, dim - unit);
        for (int64_t t = 0; t < steps; t++)
            for (int64_t row = 0, count; row < rows; row += count) {
                count = tile_rows(rows - row);
                NAME(product)(count, depth, inputs + t * input_step + row * depth, depth,
                              packed + 4 * unit * PANEL_DEPTH(depth), tile);
                for (int64_t r = 0; r < count; r++)
                    for (int64_t gate = 0; gate < 4; gate++)
                        memcpy(gates + t * gate_step + ((row + r) * 4 + gate) * dim + unit,
                               tile + r * PANEL + gate * LANES, units * sizeof(REAL));
            }
    }
}

/* The cell of some units of one row. sums contains the recurrent part of their gates, gates the
 * inputs' part; gates receives the activations if `keeps`. */
static inline __attribute__((always_inline)) void
NAME(cell_forward)(int64_t units, int64_t dim, const REAL *restrict sums, const REAL *restrict bias,
                   REAL *restrict gates, const REAL *cell, REAL *next_cell, REAL *restrict hidden,
                   REAL forget_bias, REAL clip, int keeps) {
    REAL *i = gates, *j = gates + dim, *f = j + dim, *o = f + dim;
    const REAL *bi = bias, *bj = bias + dim, *bf = bj + dim, *bo = bf + dim;
    _Pragma("omp simd") for (int64_t k = 0; k < units; k++) {
        REAL vi = SIGMOID(sums[k] + i[k] + bi[k]), vj = TANH(sums[LANES + k] + j[k] + bj[k]);
        REAL vf = SIGMOID(sums[2 * LANES + k] + f[k] + bf[k] + forget_bias);
        REAL vo = SIGMOID(sums[3 * LANES + k] + o[k] + bo[k]);
        REAL v = vf * cell[k] + vi * vj;
        v = v < -clip ? -clip : v;
        v = v > clip ? clip : v;
        next_cell[k] = v;
        hidden[k] = vo * TANH(v);
        if (keeps) i[k] = vi, j[k] = vj, f[k] = vf, o[k] = vo;
    }
}

/* Backward of the cell for some units of one row. gates contains the activations and receives the
 * gradients before the activation; grad_cell contains the gradient of the next cell and receives that
 * of the previous one. */
static inline void NAME(cell_backward)(int64_t units, int64_t dim, REAL *restrict gates,
                                       const REAL *restrict cell, const REAL *restrict next_cell,
                                       const REAL *restrict grad_hidden, REAL *restrict grad_cell,
                                       REAL clip) {
    REAL *i = gates, *j = gates + dim, *f = j + dim, *o = f + dim;
    _Pragma("omp simd") for (int64_t k = 0; k < units; k++) {
        REAL vi = i[k], vj = j[k], vf = f[k], vo = o[k], t = TANH(next_cell[k]);
        REAL g = grad_cell[k] + grad_hidden[k] * vo * (1 - t * t);
        g = (next_cell[k] >= clip || next_cell[k] <= -clip) ? (REAL)0 : g;
        i[k] = g * vj * vi * (1 - vi);
        j[k] = g * vi * (1 - vj * vj);
        f[k] = g * cell[k] * vf * (1 - vf);
        o[k] = grad_hidden[k] * t * vo * (1 - vo);
        grad_cell[k] = g * vf;
    }
}

/* One time step of a block of rows before the projection: the recurrent products and the cell. */
static void NAME(step_forward)(int64_t rows, int64_t dim, int64_t width, const REAL *previous,
                               const PACKED *packed, const REAL *bias, REAL *gates, const REAL *cell,
                               REAL *next_cell, REAL *hidden, REAL forget_bias, REAL clip,
                               int keeps) {
    REAL tile[TILE_ROWS * PANEL];
    for (int64_t unit = 0; unit < dim; unit += LANES) {
        int64_t units = least(LANES, dim - unit);
        for (int64_t row = 0, count; row < rows; row += count) {
            count = tile_rows(rows - row);
            NAME(product)(count, width, previous + row * width, width, packed + 4 * unit * PANEL_DEPTH(width), tile);
            for (int64_t r = 0; r < count; r++) {
                int64_t at = (row + r) * dim + unit;
                NAME(cell_forward)(units, dim, tile + r * PANEL, bias + unit,
                                   gates + (row + r) * 4 * dim + unit, cell + at, next_cell + at,
                                   hidden + at, forget_bias, clip, keeps);
            }
        }
    }
}

/* One time step of a block of rows back to the gates: through the projection and the cell. */
static void NAME(step_backward)(int64_t rows, int64_t dim, int64_t width, int projected,
                                const PACKED *packed, const REAL *grad_output, REAL *gates,
                                const REAL *cell, const REAL *next_cell, REAL *grad_cell,
                                REAL clip) {
    REAL tile[TILE_ROWS * PANEL];
    for (int64_t unit = 0; unit < dim; unit += PANEL) {
        int64_t units = least(PANEL, dim - unit);
        for (int64_t row = 0, count; row < rows; row += count) {
            count = tile_rows(rows - row);
            const REAL *grads = grad_output + row * width;
            if (projected) NAME(product)(count, width, grads, width, packed + unit * PANEL_DEPTH(width), tile);
            for (int64_t r = 0; r < count; r++) {
                int64_t at = (row + r) * dim + unit;
                NAME(cell_backward)(units, dim, gates + (row + r) * 4 * dim + unit, cell + at,
                                    next_cell + at, projected ? tile + r * PANEL : grads + r * width + unit,
                                    grad_cell + at, clip);
            }
        }
    }
}

/* Packs a matrix (depth, n) into panels; what they have in addition is filled with zeros. */
void NAME(pack)(int64_t depth, int64_t n, const REAL *matrix, PACKED *packed) {
    int64_t panels = parts_of(n, PANEL), size = PANEL_DEPTH(depth) * PANEL;
    _Pragma("omp parallel for schedule(static)") for (int64_t p = 0; p < panels; p++) {
        int64_t columns = least(PANEL, n - p * PANEL);
        PACKED *panel = packed + p * size;
        if (columns < PANEL || depth % 2) memset(panel, 0, size * sizeof(PACKED));
        for (int64_t k = 0; k < depth; k++) {
            const REAL *row = matrix + k * n + p * PANEL;
            for (int64_t c = 0; c < columns; c++) panel[AT(k, c)] = ROUND(row[c]);
        }
    }
}

/* Packs the transpose of a matrix (n, depth). */
void NAME(pack_transposed)(int64_t depth, int64_t n, const REAL *matrix, PACKED *packed) {
    int64_t panels = parts_of(n, PANEL), size = PANEL_DEPTH(depth) * PANEL;
    _Pragma("omp parallel for schedule(static)") for (int64_t p = 0; p < panels; p++) {
        int64_t columns = least(PANEL, n - p * PANEL);
        PACKED *panel = packed + p * size;
        if (columns < PANEL || depth % 2) memset(panel, 0, size * sizeof(PACKED));
        for (int64_t first = 0; first < depth; first += LANES)
            for (int64_t c = 0; c < columns; c++) {
                const REAL *row = matrix + (p * PANEL + c) * depth;
                for (int64_t k = first; k < least(first + LANES, depth); k++)
                    panel[AT(k, c)] = ROUND(row[k]);
            }
    }
}

/* Packs the weight of four gates (depth, 4 * dim): a panel contains the four gates of LANES units. */
void NAME(pack_gates)(int64_t depth, int64_t dim, const REAL *matrix, PACKED *packed) {
    int64_t panels = parts_of(dim, LANES), size = PANEL_DEPTH(depth) * PANEL;
    _Pragma("omp parallel for schedule(static)") for (int64_t p = 0; p < panels; p++) {
        int64_t units = least(LANES, dim - p * LANES);
        PACKED *panel = packed + p * size;
        if (units < LANES || depth % 2) memset(panel, 0, size * sizeof(PACKED));
        for (int64_t k = 0; k < depth; k++)
            for (int64_t gate = 0; gate < 4; gate++) {
                const REAL *row = matrix + (k * 4 + gate) * dim + p * LANES;
                for (int64_t c = 0; c < units; c++) panel[AT(k, gate * LANES + c)] = ROUND(row[c]);
            }
    }
}

/* Forward. inputs (directions, time, rows, input_dim), outputs (directions, time, rows, width); the
 * weights are packed. If `keeps`, gates (as activations), cells and hiddens of all time steps are
 * kept for backward: (directions, time, rows, 4 * dim), (directions, time + 1, rows, dim) and
 * (directions, time, rows, dim). Otherwise there are `chunk` time steps of gates and one of cells and
 * hiddens. Without a projection, hiddens is outputs. The inputs' part of the gates is computed for
 * `chunk` time steps at once. cells contains the first cell, and, unless `keeps`, receives the last.
 * hidden contains the first recurrent vector and receives the last. */
void NAME(lstm_forward)(int64_t directions, int64_t time, int64_t rows, int64_t input_dim,
                        int64_t dim, int64_t width, int64_t projected, int64_t keeps,
                        int64_t chunk, const int64_t *lengths, const REAL *inputs,
                        const PACKED *input_weight, const PACKED *recurrent, const REAL *bias,
                        const PACKED *projection, REAL *gates, REAL *cells, REAL *hiddens,
                        REAL *outputs, REAL *hidden, REAL forget_bias, REAL cell_clip,
                        REAL projection_clip) {
    int64_t block = block_rows(rows, directions), blocks = parts_of(rows, block);
    int64_t gate_steps = keeps ? time : chunk, cell_steps = keeps ? time + 1 : 1;
    int64_t inner_steps = keeps || !projected ? time : 1;
    _Pragma("omp parallel for collapse(2) schedule(dynamic, 1)") for (int64_t b = 0; b < blocks; b++)
        for (int64_t d = 0; d < directions; d++) {
            int64_t first = b * block, size = least(block, rows - first);
            const REAL *x = inputs + (d * time * rows + first) * input_dim;
            const PACKED *from_input = input_weight + d * 4 * padded(dim, LANES) * PANEL_DEPTH(input_dim);
            const PACKED *from_hidden = recurrent + d * 4 * padded(dim, LANES) * PANEL_DEPTH(width);
            const PACKED *to_output = projection + d * padded(width, PANEL) * PANEL_DEPTH(dim);
            REAL *all_gates = gates + (d * gate_steps * rows + first) * 4 * dim;
            REAL *all_cells = cells + (d * cell_steps * rows + first) * dim;
            REAL *inner = hiddens + (d * inner_steps * rows + first) * dim;
            REAL *output = outputs + (d * time * rows + first) * width;
            REAL *state = hidden + (d * rows + first) * width;
            const REAL *previous = state;
            int64_t running = size;
            for (int64_t t = 0; t < time; t++) {
                int64_t before = running;
                while (running && lengths[first + running - 1] <= t) running--;
                if (t % chunk == 0) /* a row that ends within the chunk costs a few products */
                    NAME(input_gates)(least(chunk, time - t), running, dim, input_dim,
                                      x + t * rows * input_dim, rows * input_dim, from_input,
                                      all_gates + t % gate_steps * rows * 4 * dim, rows * 4 * dim);
                REAL *cell = all_cells + t % cell_steps * rows * dim;
                REAL *next_cell = all_cells + (t + 1) % cell_steps * rows * dim;
                REAL *h = inner + t % inner_steps * rows * dim;
                REAL *y = output + t * rows * width;
                if (running < before) /* the state of these rows is final */
                    memcpy(state + running * width, previous + running * width,
                           previous == state ? 0 : (before - running) * width * sizeof(REAL));
                if (keeps) {
                    memcpy(next_cell + running * dim, cell + running * dim,
                           (size - running) * dim * sizeof(REAL));
                    memset(h + running * dim, 0, (size - running) * dim * sizeof(REAL));
                }
                memset(y + running * width, 0, (size - running) * width * sizeof(REAL));
                NAME(step_forward)(running, dim, width, previous, from_hidden, bias + d * 4 * dim,
                                   all_gates + t % gate_steps * rows * 4 * dim, cell, next_cell, h,
                                   forget_bias, cell_clip, keeps != 0);
                if (projected) {
                    NAME(matrix_product)(running, width, dim, h, dim, to_output, y, width, 0);
                    for (int64_t k = 0; k < running * width; k++) {
                        REAL v = y[k] < -projection_clip ? -projection_clip : y[k];
                        y[k] = v > projection_clip ? projection_clip : v;
                    }
                }
                previous = y;
            }
            if (previous != state) memcpy(state, previous, running * width * sizeof(REAL));
        }
}

/* Backward. The weights are packed and transposed. gates contains the activations and receives the
 * gradients before the activation. grad_outputs receives those before the clip of the projection;
 * kept (directions, time, rows, width) marks the outputs that were not clipped. grad_cell and
 * grad_hidden contain the gradients of the last state and receive those of the first. */
void NAME(lstm_backward)(int64_t directions, int64_t time, int64_t rows, int64_t input_dim,
                         int64_t dim, int64_t width, int64_t projected, int64_t needs_inputs,
                         const int64_t *lengths, const PACKED *input_weight,
                         const PACKED *recurrent, const PACKED *projection, const REAL *cells, const uint8_t *kept,
                         REAL *gates, REAL *grad_outputs, REAL *grad_inputs, REAL *grad_cell,
                         REAL *grad_hidden, REAL clip) {
    int64_t block = block_rows(rows, directions), blocks = parts_of(rows, block);
    _Pragma("omp parallel for collapse(2) schedule(dynamic, 1)") for (int64_t b = 0; b < blocks; b++)
        for (int64_t d = 0; d < directions; d++) {
            int64_t first = b * block, size = least(block, rows - first), running = 0;
            const PACKED *to_input = input_weight + d * padded(input_dim, PANEL) * 4 * dim;
            const PACKED *to_hidden = recurrent + d * padded(width, PANEL) * 4 * dim;
            const PACKED *to_inner = projection + d * padded(dim, PANEL) * PANEL_DEPTH(width);
            REAL *state = grad_hidden + (d * rows + first) * width;
            REAL *grad_c = grad_cell + (d * rows + first) * dim;
            for (int64_t t = time - 1; t >= 0; t--) {
                int64_t at = (d * time + t) * rows + first;
                REAL *grad_y = grad_outputs + at * width, *z = gates + at * 4 * dim;
                for (; running < size && lengths[first + running] > t; running++)
                    for (int64_t k = running * width; k < (running + 1) * width; k++)
                        grad_y[k] += state[k], state[k] = 0; /* its last output is its state */
                memset(grad_y + running * width, 0, (size - running) * width * sizeof(REAL));
                memset(z + running * 4 * dim, 0, (size - running) * 4 * dim * sizeof(REAL));
                if (projected)
                    for (int64_t k = 0; k < running * width; k++)
                        grad_y[k] = kept[at * width + k] ? grad_y[k] : 0;
                const REAL *cell = cells + (at + d * rows) * dim;
                NAME(step_backward)(running, dim, width, projected != 0, to_inner, grad_y, z, cell,
                                    cell + rows * dim, grad_c, clip);
                if (needs_inputs) {
                    REAL *grad_x = grad_inputs + at * input_dim;
                    NAME(matrix_product)(running, input_dim, 4 * dim, z, 4 * dim, to_input, grad_x,
                                         input_dim, 0);
                    memset(grad_x + running * input_dim, 0,
                           (size - running) * input_dim * sizeof(REAL));
                }
                NAME(matrix_product)(running, width, 4 * dim, z, 4 * dim, to_hidden,
                                     t ? grad_y - rows * width : state, width, 1);
            }
        }
}

#undef LANES
#undef PANEL
#undef VECTOR
#undef PACKED
#undef PANEL_DEPTH
#undef AT
#undef ROUND
