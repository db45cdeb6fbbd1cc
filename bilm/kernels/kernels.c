/* Loops for which PyTorch has no fused kernel: the LSTM layer, the character CNN by table look-up, the
 * highway layer, the sampled softmax, optimizer updates of single rows of a table, and dropout.
 *
 * bilm/kernels/c_library.py builds this file on first use. Each function is declared, with the same
 * parameters, in the Python module of its operation, beside a reference in PyTorch. All arrays are
 * contiguous and row-major. Work is split among threads by OpenMP, with PyTorch's own runtime.
 */
#include <math.h>
#include <omp.h>
#include <stdint.h>
#include <string.h>

/* exp(x) to about 1 ulp for floats, in a form that compilers can vectorize. */
static inline float exp_f(float x) {
    x = x < -87.0f ? -87.0f : (x > 88.0f ? 88.0f : x);
    float k = floorf(x * 1.44269504088896341f + 0.5f);
    float r = x - k * 0.693359375f;
    r = r + k * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    union { int32_t i; float f; } power;
    power.i = (int32_t)((uint32_t)((int32_t)k + 127) << 23);
    return p * power.f;
}

static inline float sigmoid_f(float x) { return 1.0f / (1.0f + exp_f(-x)); }

/* Near 0 the quotient would suffer from cancellation, so a polynomial is used there. */
static inline float tanh_f(float x) {
    float e = exp_f(2.0f * fabsf(x));
    float far = copysignf(1.0f - 2.0f / (e + 1.0f), x);
    float s = x * x;
    float p = -5.70498872745e-3f;
    p = p * s + 2.06390887954e-2f;
    p = p * s - 5.37397155531e-2f;
    p = p * s + 1.33314422036e-1f;
    p = p * s - 3.33332819422e-1f;
    float near = p * s * x + x;
    return fabsf(x) < 0.625f ? near : far;
}

static inline double sigmoid_d(double x) { return 1.0 / (1.0 + exp(-x)); }
static inline double tanh_d(double x) { return tanh(x); }

/* The vectors of the LSTM layer, and the rows of a product whose sums fit into the registers. */
#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#define TILE_ROWS 6
#elif defined(__AVX__)
#define VECTOR_BYTES 32
#define TILE_ROWS 3
#elif defined(__aarch64__)
#define VECTOR_BYTES 16
#define TILE_ROWS 6
#else
#define VECTOR_BYTES 16
#define TILE_ROWS 3
#endif
#define DEPTH 512     /* of the part of a product that is computed at once, for the cache */
#define LEAST_ROWS 24 /* of a task, so that reading the weights takes little of its time */

const int64_t vector_bytes = VECTOR_BYTES;

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t parts_of(int64_t n, int64_t size) { return (n + size - 1) / size; }
static inline int64_t padded(int64_t n, int64_t size) { return parts_of(n, size) * size; }

/* The number of the next rows of a product, so that all of them are divided evenly. */
static inline int64_t tile_rows(int64_t rows) { return parts_of(rows, parts_of(rows, TILE_ROWS)); }

/* The rows of a task: two tasks per thread, so that a thread on a busy core computes fewer of them. */
static int64_t block_rows(int64_t rows, int64_t directions) {
    int64_t threads = omp_get_max_threads(), blocks = parts_of(2 * threads, directions);
    int64_t most = parts_of(rows * directions, threads);
    int64_t block = parts_of(rows, blocks), enough = least(LEAST_ROWS, most);
    return block < enough ? enough : (block ? block : 1);
}

#define REAL float
#define NAME(name) name##_f32
#define SIGMOID sigmoid_f
#define TANH tanh_f
#include "lstm_layer.h"
#if defined(__AVX512BF16__)
#include <immintrin.h>
const int64_t has_bfloat16 = 1;

/* Rounds to the nearest bfloat16, and to an even one between two; NaN stays NaN. */
static inline uint16_t to_bfloat16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
    return (uint16_t)(value != value ? 0x7FC0 : rounded);
}

/* Adds the two products of a pair of bfloat16 numbers and each pair of a vector. */
static inline vector_f32 add_products(vector_f32 sums, int32_t pair, vector_f32 pairs) {
    return (vector_f32)_mm512_dpbf16_ps((__m512)sums, (__m512bh)_mm512_set1_epi32(pair),
                                        (__m512bh)(__m512)pairs);
}
#define IN_BFLOAT16
#undef NAME
#define NAME(name) bfloat16_##name##_f32
#include "lstm_layer.h"
#undef IN_BFLOAT16
#else
const int64_t has_bfloat16 = 0;
#endif
#undef REAL
#undef NAME
#undef SIGMOID
#undef TANH
#define REAL double
#define NAME(name) name##_f64
#define SIGMOID sigmoid_d
#define TANH tanh_d
#include "lstm_layer.h"
#undef REAL
#undef NAME
#undef SIGMOID
#undef TANH

/* A convolution over characters is a sum of table rows, one per position of the window. Computes the
 * maximum over all windows of each word, and the start of the winning window. table is (width,
 * characters, count). best and winner are columns of matrices with the given row stride. A word of
 * `length` characters before its padding has one distinct window at each start up to `length`: all
 * later ones are the same window of padding. The first window wins a tie, as in PyTorch. */
#define MAX_PART 1024
#define LOOKUP_FORWARD(NAME, REAL)                                                                 \
    void NAME(int64_t words, int64_t max_characters, const int16_t *ids, const int32_t *lengths,   \
              int64_t width, int64_t characters, int64_t count, const REAL *table, int64_t stride, \
              REAL *best, int16_t *winner) {                                                       \
        _Pragma("omp parallel for schedule(dynamic, 16)") for (int64_t w = 0; w < words; w++) {    \
            const int16_t *word = ids + w * max_characters;                                        \
            int64_t last = max_characters - width;                                                 \
            if (lengths[w] < last) last = lengths[w];                                              \
            REAL sum[MAX_PART]; /* a part of the filters, since a thread's stack is small */       \
            for (int64_t first = 0; first < count; first += MAX_PART) {                            \
                int64_t part = count - first < MAX_PART ? count - first : MAX_PART;                \
                REAL *restrict b = best + w * stride + first;                                      \
                int16_t *restrict at = winner + w * stride + first;                                \
                for (int64_t p = 0; p <= last; p++) {                                              \
                    memcpy(sum, table + word[p] * count + first, part * sizeof(REAL));             \
                    for (int64_t k = 1; k < width; k++) {                                          \
                        int64_t start = (k * characters + word[p + k]) * count + first;            \
                        const REAL *restrict row = table + start;                                  \
                        _Pragma("omp simd") for (int64_t n = 0; n < part; n++) sum[n] += row[n];   \
                    }                                                                              \
                    if (p == 0) {                                                                  \
                        memcpy(b, sum, part * sizeof(REAL));                                       \
                        memset(at, 0, part * sizeof(int16_t));                                     \
                        continue;                                                                  \
                    }                                                                              \
                    _Pragma("omp simd") for (int64_t n = 0; n < part; n++) {                       \
                        int better = sum[n] > b[n] || sum[n] != sum[n]; /* NaN is the maximum */   \
                        b[n] = better ? sum[n] : b[n];                                             \
                        at[n] = better ? (int16_t)p : at[n];                                       \
                    }                                                                              \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
    }

/* Only the winning window has a gradient. Filters are divided among threads, so no two threads write
 * to the same element. grad and winner are columns of matrices with the given row stride. */
#define LOOKUP_BACKWARD(NAME, REAL)                                                                \
    void NAME(int64_t words, int64_t max_characters, const int16_t *ids, int64_t width,            \
              int64_t characters, int64_t count, const REAL *grad, const int16_t *winner,          \
              int64_t stride, REAL *grad_table) {                                                  \
        int64_t part = count < 64 ? 64 : 32;                                                       \
        int64_t parts = (count + part - 1) / part;                                                 \
        _Pragma("omp parallel for schedule(dynamic)") for (int64_t q = 0; q < parts; q++) {        \
            int64_t first = q * part, stop = first + part < count ? first + part : count;          \
            for (int64_t w = 0; w < words; w++) {                                                  \
                const int16_t *word = ids + w * max_characters;                                    \
                for (int64_t n = first; n < stop; n++) {                                           \
                    REAL g = grad[w * stride + n];                                                 \
                    if (g == 0) continue;                                                          \
                    const int16_t *window = word + winner[w * stride + n];                         \
                    for (int64_t k = 0; k < width; k++)                                            \
                        grad_table[(k * characters + window[k]) * count + n] += g;                 \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
    }

LOOKUP_FORWARD(lookup_forward_f32, float)
LOOKUP_FORWARD(lookup_forward_f64, double)
LOOKUP_BACKWARD(lookup_backward_f32, float)
LOOKUP_BACKWARD(lookup_backward_f64, double)

/* A highway layer after its two products: gate and transform contain x W before the bias and receive
 * the activations, y receives the output. */
#define HIGHWAY_FORWARD(NAME, REAL, SIGMOID)                                                       \
    void NAME(int64_t words, int64_t dim, REAL *gate, REAL *transform, const REAL *gate_bias,      \
              const REAL *transform_bias, const REAL *x, REAL *y) {                                \
        _Pragma("omp parallel for schedule(static)") for (int64_t w = 0; w < words; w++) {         \
            REAL *restrict g = gate + w * dim, *restrict t = transform + w * dim;                  \
            const REAL *restrict in = x + w * dim;                                                 \
            REAL *restrict out = y + w * dim;                                                      \
            _Pragma("omp simd") for (int64_t k = 0; k < dim; k++) {                                \
                REAL vg = SIGMOID(g[k] + gate_bias[k]), vt = t[k] + transform_bias[k];             \
                vt = vt < 0 ? 0 : vt; /* NaN stays NaN */                                          \
                g[k] = vg, t[k] = vt;                                                              \
                out[k] = vg * vt + (1 - vg) * in[k];                                               \
            }                                                                                      \
        }                                                                                          \
    }

/* Backward: gate and transform receive the gradients before the activation, grad_x that of the
 * carried part. */
#define HIGHWAY_BACKWARD(NAME, REAL)                                                               \
    void NAME(int64_t words, int64_t dim, REAL *gate, REAL *transform, const REAL *x,              \
              const REAL *grad_y, REAL *grad_x) {                                                  \
        _Pragma("omp parallel for schedule(static)") for (int64_t w = 0; w < words; w++) {         \
            REAL *restrict g = gate + w * dim, *restrict t = transform + w * dim;                  \
            const REAL *restrict in = x + w * dim, *restrict gy = grad_y + w * dim;                \
            REAL *restrict gx = grad_x + w * dim;                                                  \
            _Pragma("omp simd") for (int64_t k = 0; k < dim; k++) {                                \
                REAL vg = g[k], vt = t[k];                                                         \
                g[k] = gy[k] * (vt - in[k]) * vg * (1 - vg);                                       \
                t[k] = vt <= 0 ? 0 : gy[k] * vg;                                                   \
                gx[k] = gy[k] * (1 - vg);                                                          \
            }                                                                                      \
        }                                                                                          \
    }

HIGHWAY_FORWARD(highway_forward_f32, float, sigmoid_f)
HIGHWAY_FORWARD(highway_forward_f64, double, sigmoid_d)
HIGHWAY_BACKWARD(highway_backward_f32, float)
HIGHWAY_BACKWARD(highway_backward_f64, double)

/* Turns the logits of the sampled words (words, count), without their bias, into probabilities. The
 * true word of each row is included in the normalization. hits is the column of a true word that is
 * among its own negatives, or -1. */
#define SAMPLED_SOFTMAX(NAME, REAL, EXP, LOG)                                                      \
    void NAME(int64_t words, int64_t count, REAL *logits, const REAL *bias,                        \
              const REAL *true_logit, const int64_t *hits, REAL *losses, REAL *true_share) {       \
        _Pragma("omp parallel for schedule(static)") for (int64_t w = 0; w < words; w++) {         \
            REAL *restrict l = logits + w * count;                                                 \
            REAL greatest = true_logit[w], total = 0;                                              \
            _Pragma("omp simd") for (int64_t k = 0; k < count; k++) l[k] += bias[k];               \
            if (hits[w] >= 0) l[hits[w]] = -INFINITY;                                              \
            _Pragma("omp simd reduction(max : greatest)") for (int64_t k = 0; k < count; k++)      \
                greatest = l[k] > greatest ? l[k] : greatest;                                      \
            _Pragma("omp simd reduction(+ : total)") for (int64_t k = 0; k < count; k++) {         \
                l[k] = EXP(l[k] - greatest);                                                       \
                total += l[k];                                                                     \
            }                                                                                      \
            REAL own = EXP(true_logit[w] - greatest);                                              \
            total += own;                                                                          \
            REAL scale = 1 / total;                                                                \
            _Pragma("omp simd") for (int64_t k = 0; k < count; k++) l[k] *= scale;                 \
            if (hits[w] >= 0) l[hits[w]] *= 0; /* NaN stays NaN */                                 \
            true_share[w] = own * scale;                                                           \
            losses[w] = LOG(total) + greatest - true_logit[w];                                     \
        }                                                                                          \
    }

SAMPLED_SOFTMAX(sampled_softmax_f32, float, exp_f, logf)
SAMPLED_SOFTMAX(sampled_softmax_f64, double, exp, log)

/* sums[places[n]] += scale[n] * rows[n]. Places may repeat, so columns are divided among threads. */
#define ADD_ROWS(NAME, REAL)                                                                       \
    void NAME(int64_t count, int64_t dim, const int64_t *places, const REAL *scale,                \
              const REAL *rows, REAL *sums) {                                                      \
        int64_t part = 64, parts = (dim + part - 1) / part;                                        \
        _Pragma("omp parallel for schedule(static)") for (int64_t q = 0; q < parts; q++) {         \
            int64_t first = q * part, stop = first + part < dim ? first + part : dim;              \
            for (int64_t n = 0; n < count; n++) {                                                  \
                const REAL *restrict row = rows + n * dim;                                         \
                REAL *restrict sum = sums + places[n] * dim;                                       \
                REAL factor = scale[n];                                                            \
                _Pragma("omp simd") for (int64_t k = first; k < stop; k++)                         \
                    sum[k] += factor * row[k];                                                     \
            }                                                                                      \
        }                                                                                          \
    }

ADD_ROWS(add_rows_f32, float)
ADD_ROWS(add_rows_f64, double)

/* One step of Adagrad or of Adam on the rows `ids` of a table; the ids are distinct. */
#define ADAGRAD_ROWS(NAME, REAL, SQRT)                                                             \
    void NAME(int64_t count, int64_t dim, const int64_t *ids, const REAL *grad, REAL *table,       \
              REAL *sums, REAL rate, REAL epsilon) {                                               \
        _Pragma("omp parallel for schedule(static)") for (int64_t n = 0; n < count; n++) {         \
            const REAL *restrict g = grad + n * dim;                                               \
            REAL *restrict w = table + ids[n] * dim, *restrict s = sums + ids[n] * dim;            \
            _Pragma("omp simd") for (int64_t k = 0; k < dim; k++) {                                \
                s[k] += g[k] * g[k];                                                               \
                w[k] -= rate * g[k] / (SQRT(s[k]) + epsilon);                                      \
            }                                                                                      \
        }                                                                                          \
    }

#define ADAM_ROWS(NAME, REAL, SQRT)                                                                \
    void NAME(int64_t count, int64_t dim, const int64_t *ids, const REAL *grad, REAL *table,       \
              REAL *mean, REAL *square, REAL first, REAL second, REAL rate, REAL scale,            \
              REAL epsilon) {                                                                      \
        _Pragma("omp parallel for schedule(static)") for (int64_t n = 0; n < count; n++) {         \
            const REAL *restrict g = grad + n * dim;                                               \
            REAL *restrict w = table + ids[n] * dim, *restrict m = mean + ids[n] * dim;            \
            REAL *restrict v = square + ids[n] * dim;                                              \
            _Pragma("omp simd") for (int64_t k = 0; k < dim; k++) {                                \
                m[k] += (1 - first) * (g[k] - m[k]);                                               \
                v[k] = second * v[k] + (1 - second) * g[k] * g[k];                                 \
                w[k] -= rate * m[k] / (SQRT(v[k]) * scale + epsilon);                              \
            }                                                                                      \
        }                                                                                          \
    }

ADAGRAD_ROWS(adagrad_rows_f32, float, sqrtf)
ADAGRAD_ROWS(adagrad_rows_f64, double, sqrt)
ADAM_ROWS(adam_rows_f32, float, sqrtf)
ADAM_ROWS(adam_rows_f64, double, sqrt)

/* Four random words for each of the counters (first + q, time, row, site), by Philox4x32-10. */
#define QUADS 64
static inline void philox(int64_t count, uint32_t first, const uint32_t counter[3], uint32_t seed,
                          uint32_t step, uint32_t *restrict words) {
    _Pragma("omp simd") for (int64_t q = 0; q < count; q++) {
        uint32_t a = first + (uint32_t)q, b = counter[0], c = counter[1], d = counter[2];
        uint32_t k = seed, l = step;
        for (int round = 0; round < 10; round++) {
            uint64_t low = (uint64_t)a * 0xD2511F53u, high = (uint64_t)c * 0xCD9E8D57u;
            a = (uint32_t)(high >> 32) ^ b ^ k, b = (uint32_t)high;
            c = (uint32_t)(low >> 32) ^ d ^ l, d = (uint32_t)low;
            k += 0x9E3779B9u, l += 0xBB67AE85u;
        }
        words[4 * q] = a, words[4 * q + 1] = b, words[4 * q + 2] = c, words[4 * q + 3] = d;
    }
}

/* Sets the elements of x (time, rows, dim) to zero whose random word is below the threshold, and
 * scales the others. */
#define DROPOUT(NAME, REAL)                                                                        \
    void NAME(int64_t time, int64_t rows, int64_t dim, int64_t seed, int64_t step,                 \
              int64_t first_row, int64_t site, int64_t threshold, REAL scale, const REAL *x,       \
              REAL *y) {                                                                           \
        _Pragma("omp parallel for schedule(static)") for (int64_t n = 0; n < time * rows; n++) {   \
            uint32_t place[3] = {(uint32_t)(n / rows), (uint32_t)(first_row + n % rows),           \
                                 (uint32_t)site};                                                  \
            uint32_t words[4 * QUADS], limit = (uint32_t)threshold;                                \
            for (int64_t first = 0; first < dim; first += 4 * QUADS) {                             \
                int64_t part = dim - first < 4 * QUADS ? dim - first : 4 * QUADS;                  \
                const REAL *restrict in = x + n * dim + first;                                     \
                REAL *restrict out = y + n * dim + first;                                          \
                philox((part + 3) / 4, (uint32_t)(first / 4), place, (uint32_t)seed,               \
                       (uint32_t)step, words);                                                     \
                _Pragma("omp simd") for (int64_t k = 0; k < part; k++)                             \
                    out[k] = words[k] < limit ? (REAL)0 : in[k] * scale;                           \
            }                                                                                      \
        }                                                                                          \
    }

DROPOUT(dropout_f32, float)
DROPOUT(dropout_f64, double)
