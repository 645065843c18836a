// The attention loops. Products run on a register-blocked kernel over panels of keys; each block of scores is
// turned into probabilities while it is in cache, against the maximum seen so far, and earlier results are
// rescaled.
#include "cpu/attention/table.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "core/parallel.h"

namespace fl {
namespace FL_ARCH {

namespace {

#if defined(FL_ARCH_v4)
constexpr int64_t kLanes = 16;
constexpr int kRows = 6, kVectors = 4;
#else
constexpr int64_t kLanes = 8;
constexpr int kRows = 6, kVectors = 2;
#endif
typedef float Vec __attribute__((vector_size(kLanes * 4), aligned(4), may_alias));
constexpr int64_t kPanel = kLanes * kVectors;  // columns a panel of the right operand has
constexpr int64_t kQueryBlock = 36;            // a multiple of kRows
constexpr int64_t kKeyBlock = 512;  // a multiple of kPanel; long rows spread the cost of a row's reductions
constexpr int64_t kFewRows = 8;     // queries of all heads of a group that read keys where they lie
constexpr float kNone = -std::numeric_limits<float>::infinity();

int64_t round_up(int64_t n, int64_t to) {
  return (n + to - 1) / to * to;
}

// Uninitialised memory of a thread's own.
class Room {
 public:
  explicit Room(int64_t n)
      : data_(static_cast<float*>(std::aligned_alloc(64, round_up(std::max<int64_t>(n, 16) * 4, 64)))) {}
  ~Room() { std::free(data_); }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;
  float* get() const { return data_; }

 private:
  float* data_;
};

// c[R rows][V vectors] (+)= a[R][k] * b[k][V vectors].
template <int R, int V>
void block(int64_t k, const float* a, int64_t a_row, int64_t a_col, const float* b, int64_t b_row, float* c,
           int64_t c_row, bool add) {
  Vec sum[R][V];
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v)
      sum[r][v] = add ? *reinterpret_cast<const Vec*>(c + r * c_row + v * kLanes) : Vec{};
  for (int64_t i = 0; i < k; ++i) {
    Vec x[V];
    for (int v = 0; v < V; ++v) x[v] = *reinterpret_cast<const Vec*>(b + i * b_row + v * kLanes);
    for (int r = 0; r < R; ++r) {
      const float s = a[r * a_row + i * a_col];
      for (int v = 0; v < V; ++v) sum[r][v] += s * x[v];
    }
  }
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v) *reinterpret_cast<Vec*>(c + r * c_row + v * kLanes) = sum[r][v];
}

using BlockFn = void (*)(int64_t, const float*, int64_t, int64_t, const float*, int64_t, float*, int64_t,
                         bool);
template <int R>
constexpr BlockFn pick_vectors(int vectors) {
  if (vectors == 1) return &block<R, 1>;
  if (vectors == 2) return &block<R, 2>;
#if defined(FL_ARCH_v4)
  if (vectors == 3) return &block<R, 3>;
  return &block<R, 4>;
#else
  return &block<R, 2>;
#endif
}
BlockFn pick(int rows, int vectors) {
  switch (rows) {
    case 1:
      return pick_vectors<1>(vectors);
    case 2:
      return pick_vectors<2>(vectors);
    case 3:
      return pick_vectors<3>(vectors);
    case 4:
      return pick_vectors<4>(vectors);
    case 5:
      return pick_vectors<5>(vectors);
    default:
      return pick_vectors<6>(vectors);
  }
}

// C (m x n) (+)= A (m x k) B (k x n); n is a multiple of kLanes. The columns j.. of B start at b + j / kPanel
// * b_panel, so that B may lie in panels (b_row = kPanel) or in rows (b_panel = kPanel).
void multiply(int64_t m, int64_t n, int64_t k, const float* a, int64_t a_row, int64_t a_col, const float* b,
              int64_t b_row, int64_t b_panel, float* c, int64_t c_row, bool add) {
  for (int64_t j = 0; j < n; j += kPanel) {
    const int vectors = static_cast<int>(std::min(kPanel, n - j) / kLanes);
    const float* panel = b + j / kPanel * b_panel;
    const BlockFn full = pick(kRows, vectors);
    int64_t i = 0;
    for (; i + kRows <= m; i += kRows)
      full(k, a + i * a_row, a_row, a_col, panel, b_row, c + i * c_row + j, c_row, add);
    if (i < m)
      pick(static_cast<int>(m - i), vectors)(k, a + i * a_row, a_row, a_col, panel, b_row, c + i * c_row + j,
                                             c_row, add);
  }
}

// exp for arguments that are not positive: 2^n * 2^f with our own minimax polynomial for the fraction
// (7.5e-8). What is computed for arguments below the range, minus infinity included, is thrown away at the
// end; a NaN stays.
inline __attribute__((always_inline)) float exp_negative(float x) {
  const float shifted = x * 1.44269504088896341f + 12582912.0f;
  const float f = x * 1.44269504088896341f - (shifted - 12582912.0f);
  float p = 1.3276472028e-3f;
  p = p * f + 9.6755414798e-3f;
  p = p * f + 5.5507132747e-2f;
  p = p * f + 2.4022119721e-1f;
  p = p * f + 6.9314696706e-1f;
  p = p * f + 1.00000007166f;
  uint32_t bits, scale;
  std::memcpy(&scale, &shifted, 4);
  std::memcpy(&bits, &p, 4);
  bits += scale << 23;
  std::memcpy(&p, &bits, 4);
  return x >= -87.0f ? p : 0.0f >= x ? 0.0f : x;
}

// The largest of n (a multiple of kLanes) scores and `most`; a NaN is passed over, the sum of exponentials
// shows it.
float row_max(const float* s, int64_t n, float most) {
  Vec lanes = most - Vec{};
  for (int64_t j = 0; j < n; j += kLanes) {
    const Vec x = *reinterpret_cast<const Vec*>(s + j);
    lanes = x > lanes ? x : lanes;
  }
  for (int64_t l = 0; l < kLanes; ++l) most = std::max(most, lanes[l]);
  return most;
}

// s = exp(s - shift); returns the sum.
float row_exp(float* s, int64_t n, float shift) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t j = 0; j < n; ++j) {
    s[j] = exp_negative(s[j] - shift);
    sum += s[j];
  }
  return sum;
}

// Rows of any type as padded rows of floats, times `scale`.
template <class T>
void load_rows(const T* from, int64_t row, int64_t rows, int64_t columns, float scale, float* to,
               int64_t to_row) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) to[i * to_row + j] = static_cast<float>(from[i * row + j]) * scale;
    for (int64_t j = columns; j < to_row; ++j) to[i * to_row + j] = 0;
  }
}

// The transpose of `rows` rows, in panels: to[panel][column][kPanel rows].
template <class T>
void load_panels(const T* from, int64_t row, int64_t rows, int64_t columns, float* to) {
  constexpr int64_t tile = 8;
  for (int64_t p = 0; p < rows; p += kPanel) {
    float* panel = to + p * columns;
    const int64_t count = std::min(kPanel, rows - p);
    if (count < kPanel) std::fill_n(panel, columns * kPanel, 0.0f);
    int64_t r = 0;
    for (; r + tile <= count; r += tile) {
      const T* x = from + (p + r) * row;
      float* y = panel + r;
      for (int64_t c = 0; c < columns; ++c)
        for (int64_t i = 0; i < tile; ++i) y[c * kPanel + i] = static_cast<float>(x[i * row + c]);
    }
    for (; r < count; ++r)
      for (int64_t c = 0; c < columns; ++c)
        panel[c * kPanel + r] = static_cast<float>(from[(p + r) * row + c]);
  }
}

template <class T>
T* at(const AttentionOperand& o, int64_t batch, int64_t head, int64_t row = 0) {
  return static_cast<T*>(o.data) + batch * o.batch + head * o.head + row * o.row;
}

// Hides the scores where the mask is zero. Scores are read either way, so that there is no branch.
void hide(const uint8_t* mask, int64_t step, int64_t n, float* s) {
  const auto each = [&](auto stride) {
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) {
      const float x = s[j];
      s[j] = mask[j * stride] != 0 ? x : kNone;
    }
  };
  if (step == 1)
    each(std::integral_constant<int64_t, 1>());
  else
    each(step);
}

// s[j] = q . k[j], for keys where they lie.
template <class T>
void score_keys(const float* q, const T* k, int64_t row, int64_t keys, int64_t depth, float* s) {
  for (int64_t j = 0; j < keys; ++j) {
    const T* key = k + j * row;
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < depth; ++i) sum += q[i] * static_cast<float>(key[i]);
    s[j] = sum;
  }
}

// Adds the mask to a block of scores and hides keys after the query when causal and columns beyond `keys`.
void apply_mask(const AttentionArgs& g, int64_t b, int64_t h, int64_t q0, int64_t rows, int64_t k0,
                int64_t columns, int64_t padded, float* scores) {
  for (int64_t i = 0; i < rows; ++i) {
    float* s = scores + i * kKeyBlock;
    if (g.mask) {
      const int64_t start = b * g.mask_strides[0] + h * g.mask_strides[1] + (q0 + i) * g.mask_strides[2] +
                            k0 * g.mask_strides[3];
      const int64_t step = g.mask_strides[3];
      if (g.mask_dtype == DType::Bool) {
        hide(static_cast<const uint8_t*>(g.mask) + start, step, columns, s);
      } else {
        const float* m = static_cast<const float*>(g.mask) + start;
        if (step == 1)
          for (int64_t j = 0; j < columns; ++j) s[j] += m[j];
        else
          for (int64_t j = 0; j < columns; ++j) s[j] += m[j * step];
      }
    }
    int64_t visible = columns;
    if (g.causal) visible = std::min(columns, std::max<int64_t>(0, q0 + i + 1 - k0));
    for (int64_t j = visible; j < padded; ++j) s[j] = kNone;
  }
}

// Divides the sums of a block of queries by their totals, and writes them and the logarithms of the totals.
template <class T>
void store_block(const AttentionArgs& g, int64_t b, int64_t h, int64_t q0, int64_t rows, const float* sums,
                 int64_t value_depth, const float* top, const float* total) {
  for (int64_t i = 0; i < rows; ++i) {
    const float inverse = total[i] == 0 ? 0.0f : 1.0f / total[i];
    T* o = at<T>(g.output, b, h, q0 + i);
    for (int64_t j = 0; j < g.value_depth; ++j) o[j] = static_cast<T>(sums[i * value_depth + j] * inverse);
    if (g.logsumexp)
      g.logsumexp[(b * g.heads + h) * g.queries + q0 + i] =
          total[i] == 0 ? kNone : top[i] + std::log(total[i]);
  }
}

template <class T>
void forward_typed(const AttentionArgs& g) {
  const int64_t depth = g.depth, value_depth = round_up(g.value_depth, kLanes);
  const int64_t blocks = (g.queries + kQueryBlock - 1) / kQueryBlock, group = g.heads / g.kv_heads;
  // Values are read in rows where they lie one after the other; else they are gathered into panels, as keys
  // are.
  // For few rows, as when text is generated token by token, rearranging them costs more than it saves.
  const bool few = g.queries * group <= kFewRows;
  const bool pack_values = !std::is_same_v<T, float> || value_depth != g.value_depth ||
                           (!few && (value_depth > kPanel || g.value.row != value_depth));
  const int64_t work =
      std::max<int64_t>(1, std::min(kQueryBlock, g.queries) * g.keys * (depth + g.value_depth));
  parallel_for(
      g.batch * g.heads * blocks, std::max<int64_t>(1, 16 * kGrain / work), [&](int64_t first, int64_t last) {
        Room key_room(few ? 0 : round_up(g.keys, kPanel) * depth),
            value_room(pack_values ? g.keys * round_up(value_depth, kPanel) : 0);
        Room query_room(kQueryBlock * depth), score_room(kQueryBlock * kKeyBlock),
            sum_room(kQueryBlock * value_depth);
        float *scores = score_room.get(), *sums = sum_room.get();
        int64_t packed = -1;
        for (int64_t task = first; task < last; ++task) {
          const int64_t b = task / blocks / g.heads, h = task / blocks % g.heads,
                        q0 = task % blocks * kQueryBlock, kv = h / group;
          const int64_t rows = std::min(kQueryBlock, g.queries - q0);
          const float* values =
              pack_values ? value_room.get() : reinterpret_cast<const float*>(at<T>(g.value, b, kv));
          const int64_t value_row = pack_values ? kPanel : g.value.row,
                        value_panel = pack_values ? g.keys * kPanel : kPanel;
          if (packed != b * g.kv_heads + kv) {
            if (!few) load_panels(at<T>(g.key, b, kv), g.key.row, g.keys, depth, key_room.get());
            if (pack_values)
              for (int64_t j = 0; j < g.value_depth; j += kPanel)
                load_rows(at<T>(g.value, b, kv) + j, g.value.row, g.keys, std::min(kPanel, g.value_depth - j),
                          1, value_room.get() + j * g.keys, kPanel);
            packed = b * g.kv_heads + kv;
          }
          load_rows(at<T>(g.query, b, h, q0), g.query.row, rows, depth, g.scale, query_room.get(), depth);
          float top[kQueryBlock], total[kQueryBlock];
          std::fill_n(top, rows, kNone);
          std::fill_n(total, rows, 0.0f);
          std::fill_n(sums, rows * value_depth, 0.0f);
          const int64_t keys = g.causal ? std::min(g.keys, q0 + rows) : g.keys;
          for (int64_t k0 = 0; k0 < keys; k0 += kKeyBlock) {
            const int64_t columns = std::min(kKeyBlock, keys - k0), padded = round_up(columns, kLanes);
            if (few)
              for (int64_t i = 0; i < rows; ++i)
                score_keys(query_room.get() + i * depth, at<T>(g.key, b, kv, k0), g.key.row, columns, depth,
                           scores + i * kKeyBlock);
            else
              multiply(rows, padded, depth, query_room.get(), depth, 1, key_room.get() + k0 * depth, kPanel,
                       kPanel * depth, scores, kKeyBlock, false);
            if (g.mask || padded != columns || (g.causal && k0 + columns > q0 + 1))
              apply_mask(g, b, h, q0, rows, k0, columns, padded, scores);
            for (int64_t i = 0; i < rows; ++i) {
              float* s = scores + i * kKeyBlock;
              const float most = row_max(s, padded, top[i]);
              const float shift = most == kNone ? 0.0f : most;
              const float sum = row_exp(s, padded, shift);
              if (most != top[i]) {
                const float fade = exp_negative(top[i] - shift);
                total[i] *= fade;
                float* o = sums + i * value_depth;
                for (int64_t j = 0; j < value_depth; ++j) o[j] *= fade;
                top[i] = most;
              }
              total[i] += sum;
            }
            multiply(rows, value_depth, columns, scores, kKeyBlock, 1, values + k0 * value_row, value_row,
                     value_panel, sums, value_depth, true);
          }
          store_block<T>(g, b, h, q0, rows, sums, value_depth, top, total);
        }
      });
}

template <class T>
void store_rows(const float* from, int64_t from_row, int64_t rows, int64_t columns, float scale, T* to,
                int64_t to_row) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) to[i * to_row + j] = static_cast<T>(from[i * from_row + j] * scale);
}

template <class T>
void backward_typed(const AttentionArgs& g) {
  const int64_t depth = round_up(g.depth, kLanes), value_depth = round_up(g.value_depth, kLanes);
  const int64_t group = g.heads / g.kv_heads, L = g.queries, S = g.keys;
  parallel_for(g.batch * g.kv_heads, 1, [&](int64_t first, int64_t last) {
    // depth and value_depth are padded with zeros, which change no product.
    Room query(L * depth), key(S * depth), grad(L * value_depth), value(S * value_depth);
    Room key_panels(round_up(S, kPanel) * depth), value_panels(round_up(S, kPanel) * value_depth);
    Room grad_query(L * depth), grad_key(S * depth), grad_value(S * value_depth);
    Room probability_room(kQueryBlock * kKeyBlock), slope_room(kQueryBlock * kKeyBlock), delta(L);
    float *P = probability_room.get(), *dS = slope_room.get();
    for (int64_t task = first; task < last; ++task) {
      const int64_t b = task / g.kv_heads, kv = task % g.kv_heads;
      load_rows(at<T>(g.key, b, kv), g.key.row, S, g.depth, 1, key.get(), depth);
      load_rows(at<T>(g.value, b, kv), g.value.row, S, g.value_depth, 1, value.get(), value_depth);
      load_panels(key.get(), depth, S, depth, key_panels.get());
      load_panels(value.get(), value_depth, S, value_depth, value_panels.get());
      std::fill_n(grad_key.get(), S * depth, 0.0f);
      std::fill_n(grad_value.get(), S * value_depth, 0.0f);
      for (int64_t h = kv * group; h < (kv + 1) * group; ++h) {
        load_rows(at<T>(g.query, b, h), g.query.row, L, g.depth, g.scale, query.get(), depth);
        load_rows(at<T>(g.grad_output, b, h), g.grad_output.row, L, g.value_depth, 1, grad.get(),
                  value_depth);
        std::fill_n(grad_query.get(), L * depth, 0.0f);
        for (int64_t i = 0; i < L; ++i) {
          const T* o = at<T>(g.output, b, h, i);
          float sum = 0;
          for (int64_t j = 0; j < g.value_depth; ++j)
            sum += grad.get()[i * value_depth + j] * static_cast<float>(o[j]);
          delta.get()[i] = sum;
        }
        const float* lse = g.logsumexp + (b * g.heads + h) * L;
        for (int64_t q0 = 0; q0 < L; q0 += kQueryBlock) {
          const int64_t rows = std::min(kQueryBlock, L - q0), keys = g.causal ? std::min(S, q0 + rows) : S;
          const float *q = query.get() + q0 * depth, *dO = grad.get() + q0 * value_depth;
          for (int64_t k0 = 0; k0 < keys; k0 += kKeyBlock) {
            const int64_t columns = std::min(kKeyBlock, keys - k0), padded = round_up(columns, kLanes);
            multiply(rows, padded, depth, q, depth, 1, key_panels.get() + k0 * depth, kPanel, kPanel * depth,
                     P, kKeyBlock, false);
            if (g.mask || padded != columns || (g.causal && k0 + columns > q0 + 1))
              apply_mask(g, b, h, q0, rows, k0, columns, padded, P);
            multiply(rows, padded, value_depth, dO, value_depth, 1, value_panels.get() + k0 * value_depth,
                     kPanel, kPanel * value_depth, dS, kKeyBlock, false);
            for (int64_t i = 0; i < rows; ++i) {
              float *p = P + i * kKeyBlock, *d = dS + i * kKeyBlock;
              const float shift = lse[q0 + i] == kNone ? 0.0f : lse[q0 + i], center = delta.get()[q0 + i];
#pragma GCC ivdep
              for (int64_t j = 0; j < padded; ++j) {
                p[j] = exp_negative(std::min(p[j] - shift, 0.0f));
                d[j] = p[j] == 0 ? 0.0f : p[j] * (d[j] - center);
              }
            }
            multiply(columns, value_depth, rows, P, 1, kKeyBlock, dO, value_depth, kPanel,
                     grad_value.get() + k0 * value_depth, value_depth, true);
            multiply(columns, depth, rows, dS, 1, kKeyBlock, q, depth, kPanel, grad_key.get() + k0 * depth,
                     depth, true);
            multiply(rows, depth, columns, dS, kKeyBlock, 1, key.get() + k0 * depth, depth, kPanel,
                     grad_query.get() + q0 * depth, depth, true);
          }
        }
        store_rows(grad_query.get(), depth, L, g.depth, g.scale, at<T>(g.grad_query, b, h), g.grad_query.row);
      }
      // The queries carried the scale into the keys' gradient already.
      store_rows(grad_key.get(), depth, S, g.depth, 1, at<T>(g.grad_key, b, kv), g.grad_key.row);
      store_rows(grad_value.get(), value_depth, S, g.value_depth, 1, at<T>(g.grad_value, b, kv),
                 g.grad_value.row);
    }
  });
}

void forward(const AttentionArgs& g) {
  if (g.dtype == DType::BFloat16)
    forward_typed<BFloat16>(g);
  else if (g.dtype == DType::Half)
    forward_typed<Half>(g);
  else
    forward_typed<float>(g);
}

void backward(const AttentionArgs& g) {
  if (g.dtype == DType::BFloat16)
    backward_typed<BFloat16>(g);
  else if (g.dtype == DType::Half)
    backward_typed<Half>(g);
  else
    backward_typed<float>(g);
}

}  // namespace

extern const AttentionTable attention_table;
const AttentionTable attention_table{&forward, &backward};

}  // namespace FL_ARCH
}  // namespace fl
