// Between the host's part of the CUDA library and its kernels.
#pragma once

#include "cuda/runtime/runtime.h"
#include "ops/gemm.h"
#include "ops/pointwise.h"
#include "ops/random.h"
#include "ops/reduce.h"
#include "ops/updates.h"

namespace fl {
struct ResizeArgs;
struct GridArgs;
namespace rnn {
struct Step;
}
}  // namespace fl

namespace fl::cuda {

void copy(const Tensor& dst, const Tensor& src, bool non_blocking);
void fill(const Tensor& t, const void* pattern);
void fill_range(const Tensor& t, const Scalar& start, const Scalar& step);
void run_pointwise(const PointwiseCall& call);
void run_reduce(const ReduceCall& call);
void run_update(const UpdateCall& call);
void random(const Tensor& contiguous, const RandomCall& call);
void random_state(const Tensor& to, uint64_t seed, uint64_t offset);
// Random numbers of captured work: between these, what draws from the default generator reads seed and offset
// from a slot of the device, which is filled anew before each launch of the graph.
void begin_drawing(int device);
void end_drawing(int device, cudaGraphExec_t graph);  // null: the capture failed
void draw_again(cudaGraphExec_t graph, cudaStream_t stream);
void forget_drawing(cudaGraphExec_t graph);
void gemm(const GemmArgs& args);
// The same with a result of another dtype (float for products of half and bfloat16); needs the library.
void gemm(const GemmArgs& args, DType result);
void resize(const ResizeArgs& args, bool backward);
void grid_sample(const GridArgs& args);
void fft(const Tensor& to, const Tensor& from, IntSpan dims, bool forward, double scale);
// Multiplies a contiguous tensor of float or double numbers or complex ones of these, and conjugates it.
void fft_finish(const Tensor& t, double scale, bool conjugate);
void recurrent(const rnn::Step& step);
bool has_blas();
bool get_tf32();
// The product by a plain kernel, for what the library does not take.
void gemm_plain(const GemmArgs& args);
// What kernels set when they meet an index out of bounds, in memory of the host.
int* failure_flag();
// Raises when an index out of bounds was met; called after the host has waited for the device.
void check_indices();
// Runs an operator by its definition: what kernels do with arguments they do not take.
void by_definition(const Operator& op, KeySet keys, Value* args, Value* results);
// Raises when a tensor among the arguments is elsewhere: kernels read through the pointers they get.
void check_on_device(const Operator& op, const Value* args);
// What the operator's own kernel answers for tensors without data: it raises for bad arguments as it does on
// the CPU, and says how results lie in memory.
class Described {
 public:
  Described(const Operator& op, const Value* args);
  void lay_out(Value* results) const;  // copies the results that lie otherwise

 private:
  std::vector<Value> results_;
};
// Gives the operators of the generated records their kernels for the device.
void attach_generated_kernels();

}  // namespace fl::cuda
