// The transforms of Winograd's convolution F(2 x 2, 3 x 3), each a vector loop over channels: Y = A'((G g G')
// * (B' d B))A.
#include "cpu/convolution/winograd.h"

namespace fl {
namespace FL_ARCH {
namespace {

// t = G g G': rows of G are (1, 0, 0), (1, 1, 1) / 2, (1, -1, 1) / 2, (0, 0, 1).
void weights(const float* kernels, int64_t apart, int64_t channels, float* to, int64_t step) {
#pragma omp simd
  for (int64_t c = 0; c < channels; ++c) {
    const float* g = kernels + apart * c;
    float rows[4][3];
    for (int j = 0; j < 3; ++j) {
      const float outer = 0.5f * (g[j] + g[6 + j]), middle = 0.5f * g[3 + j];
      rows[0][j] = g[j];
      rows[1][j] = outer + middle;
      rows[2][j] = outer - middle;
      rows[3][j] = g[6 + j];
    }
    for (int i = 0; i < 4; ++i) {
      const float outer = 0.5f * (rows[i][0] + rows[i][2]), middle = 0.5f * rows[i][1];
      float* out = to + 4 * i * step + c;
      out[0] = rows[i][0];
      out[step] = outer + middle;
      out[2 * step] = outer - middle;
      out[3 * step] = rows[i][2];
    }
  }
}

// t = B' d B: rows of B' are (1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1).
void input(const float* const* positions, int64_t channels, float* to, int64_t step) {
  const float* __restrict d[16];
  for (int i = 0; i < 16; ++i) d[i] = positions[i];
#pragma omp simd
  for (int64_t c = 0; c < channels; ++c) {
    float rows[4][4];
    for (int j = 0; j < 4; ++j) {
      const float a = d[j][c], b = d[4 + j][c], e = d[8 + j][c], f = d[12 + j][c];
      rows[0][j] = a - e;
      rows[1][j] = b + e;
      rows[2][j] = e - b;
      rows[3][j] = b - f;
    }
    for (int i = 0; i < 4; ++i) {
      float* out = to + 4 * i * step + c;
      out[0] = rows[i][0] - rows[i][2];
      out[step] = rows[i][1] + rows[i][2];
      out[2 * step] = rows[i][2] - rows[i][1];
      out[3 * step] = rows[i][1] - rows[i][3];
    }
  }
}

// y = A' m A: rows of A' are (1, 1, 1, 0), (0, 1, -1, -1).
template <bool kResidual>
void finished(const float* products, int64_t step, int64_t channels, const WinogradFinish& finish,
              const float* const* residuals, float* const* outputs) {
  const float low = finish.relu ? 0.0f : -__builtin_inff();
  const float* factor = finish.factor;
  const float* offset = finish.offset;
  float *y0 = outputs[0], *y1 = outputs[1], *y2 = outputs[2], *y3 = outputs[3];
  const float* r[4] = {};
  if (kResidual)
    for (int i = 0; i < 4; ++i) r[i] = residuals[i];
#pragma omp simd
  for (int64_t c = 0; c < channels; ++c) {
    float rows[2][4];
    for (int j = 0; j < 4; ++j) {
      const float* m = products + j * step + c;
      rows[0][j] = m[0] + m[4 * step] + m[8 * step];
      rows[1][j] = m[4 * step] - m[8 * step] - m[12 * step];
    }
    float y[4];
    for (int i = 0; i < 2; ++i) {
      y[2 * i] = rows[i][0] + rows[i][1] + rows[i][2];
      y[2 * i + 1] = rows[i][1] - rows[i][2] - rows[i][3];
    }
    for (int i = 0; i < 4; ++i) {
      y[i] = y[i] * factor[c] + offset[c];
      if (kResidual) y[i] += r[i][c];
      y[i] = y[i] < low ? low : y[i];  // NaN stays
    }
    y0[c] = y[0];
    y1[c] = y[1];
    y2[c] = y[2];
    y3[c] = y[3];
  }
}

void output(const float* products, int64_t step, int64_t channels, const WinogradFinish& finish,
            const float* const* residuals, float* const* outputs) {
  (residuals ? finished<true> : finished<false>)(products, step, channels, finish, residuals, outputs);
}

}  // namespace

extern const WinogradLoops winograd_loops;
const WinogradLoops winograd_loops = {weights, input, output};

}  // namespace FL_ARCH
}  // namespace fl
