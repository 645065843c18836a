// Loops of the Fourier transforms in double.
#include "cpu/kernels/fft_passes.h"

namespace fl::cpu::fft_detail {
namespace FL_ARCH {

extern const FftLoops<double> fft_loops_double;
const FftLoops<double> fft_loops_double = loops<double>();

}  // namespace FL_ARCH
}  // namespace fl::cpu::fft_detail
