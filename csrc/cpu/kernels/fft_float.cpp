// Loops of the Fourier transforms in float.
#include "cpu/kernels/fft_passes.h"

namespace fl::cpu::fft_detail {
namespace FL_ARCH {

extern const FftLoops<float> fft_loops_float;
const FftLoops<float> fft_loops_float = loops<float>();

}  // namespace FL_ARCH
}  // namespace fl::cpu::fft_detail
