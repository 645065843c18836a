// The scheduler of emulated threads, and kernels as functions for Python.
#include "cuda/convolution/depthwise.h"
#include "cuda/attention/flash.h"
#include "cuda/hopper/boxes.h"

dim3 threadIdx, blockIdx, gridDim;

namespace emulated {

std::vector<Thread> threads;
std::vector<Slot> slots;
std::vector<Barrier> warps, groups;
Barrier block;
std::map<uint32_t, Counted> counted;
long progress = 0;

namespace {
std::vector<char> memory;
ucontext_t scheduler;
const std::function<void()>* entry;
const char* failure;

void enter() {
  try {
    (*entry)();
  } catch (const std::exception&) {
    failure = "a thread has raised";
  }
  threads[threadIdx.x].done = true;
  ++progress;
  yield();
}
}  // namespace

void yield() {
  swapcontext(&threads[threadIdx.x].context, &scheduler);
}

void Counted::arrive() {
  if (--missing < 0) throw std::runtime_error("too many have arrived");
  ++progress;
  deliver();
}
// A turn is over when nobody is missing; what was sent for comes then.
void Counted::deliver() {
  if (missing) return;
  for (const auto& box : boxes) bytes -= box();
  boxes.clear();
  if (bytes) return;
  missing = arrivals;
  ++passed;
  ++progress;
}

char* shared_at(uint32_t address, int bytes) {
  if (address < kShared || address % std::min(bytes, 16) || address - kShared + bytes > memory.size())
    throw std::runtime_error("outside of shared memory");
  return memory.data() + (address - kShared);
}

void run(dim3 grid, unsigned count, unsigned shared, const std::function<void()>& kernel) {
  entry = &kernel;
  gridDim = grid;
  for (unsigned y = 0; y < grid.y; ++y)
    for (unsigned x = 0; x < grid.x && !failure; ++x) {
      blockIdx = dim3(x, y);
      memory.assign(shared, static_cast<char>(0xff));
      slots.assign(count, Slot());
      warps.assign(count / 32, Barrier());
      groups.assign(count / 128, Barrier());
      block = Barrier();
      counted.clear();
      threads.resize(count);
      for (Thread& t : threads) {
        t.stack.resize(1 << 18);
        t.copies.clear();
        t.done = false;
        getcontext(&t.context);
        t.context.uc_stack.ss_sp = t.stack.data();
        t.context.uc_stack.ss_size = t.stack.size();
        t.context.uc_link = nullptr;
        makecontext(&t.context, enter, 0);
      }
      for (bool left = true; left && !failure;) {
        const long before = progress;
        left = false;
        for (unsigned i = 0; i < count; ++i)
          if (!threads[i].done) {
            left = true;
            threadIdx = dim3(i);
            swapcontext(&scheduler, &threads[i].context);
          }
        if (left && progress == before) failure = "threads wait for each other for ever";
      }
    }
}

}  // namespace emulated

bool by_groups;
bool fl::cuda::flash::has_groups(const Args&) {
  return by_groups;
}

fl::cuda::flash::Rows fl::cuda::flash::rows_of(const Operand& t, bool, int depth, int rows, int heads,
                                               int batches, int box_rows) {
  return {
      {t.data, {t.row, t.head, t.batch}, {depth, rows, heads, batches}, box_rows}, heads > 1, batches > 1};
}

int fl::cuda::flash::processors() {
  return 2;
}

extern "C" {
// Null, or what went wrong. A mask is of float, or of bool.
const char* attention(const fl::cuda::flash::Args* args, bool brain, bool boolean_mask, bool groups) {
  by_groups = groups;
  emulated::failure = nullptr;
  fl::cuda::flash::Args a = *args;
  a.mask_dtype = boolean_mask ? fl::DType::Bool : fl::DType::Float;
  fl::cuda::flash::forward(a, brain, nullptr);
  if (!emulated::failure) fl::cuda::flash::backward(a, brain, nullptr);
  return emulated::failure;
}
int size_of_arguments() {
  return sizeof(fl::cuda::flash::Args);
}
// Likewise: the result, and both gradients.
const char* depthwise(const fl::cuda::depthwise::Problem* problem, const void* x, const void* w,
                      const void* bias, void* y, const void* grad, void* by_input, void* by_weight) {
  emulated::failure = nullptr;
  fl::cuda::depthwise::Problem p = *problem;
  p.dtype = static_cast<fl::DType>(static_cast<int>(fl::DType::Half) + static_cast<int>(p.dtype));
  fl::cuda::depthwise::forward(p, x, w, bias, y, nullptr);
  fl::cuda::depthwise::input_gradient(p, grad, w, by_input, nullptr);
  std::vector<char> parts(fl::cuda::depthwise::bytes_of_parts(p), static_cast<char>(0xff));
  fl::cuda::depthwise::weight_gradient(p, x, grad, parts.data(), by_weight, nullptr);
  return emulated::failure;
}
}
