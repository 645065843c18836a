// The reduction engine: geometry, threads, staging of elements that do not lie as the loops want them.
#include "cpu/engine/reduce.h"

#include <cstring>
#include <memory>

#include "core/parallel.h"
#include "cpu/engine/cast.h"

namespace fl {

namespace {

constexpr int64_t kStage = 4096;        // elements staged at a time
constexpr int64_t kShortRow = 24;       // rows shorter than this are reduced side by side
constexpr int64_t kColumnBlock = 4096;  // columns in one work item

struct Dim {
  int64_t size, stride;  // bytes in the input
  int64_t out[2];        // bytes in the outputs
};

// Scratch memory: on the stack when small.
class Scratch {
 public:
  explicit Scratch(int64_t bytes) {
    if (bytes > static_cast<int64_t>(sizeof(fixed_))) {
      heap_.reset(new char[bytes + 64]);
      data_ = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(heap_.get()) + 63) & ~uintptr_t(63));
    }
  }
  char* get() { return data_; }

 private:
  alignas(64) char fixed_[2048];
  std::unique_ptr<char[]> heap_;
  char* data_ = fixed_;
};

class Engine {
 public:
  Engine(const Tensor& self, uint64_t mask, DType element, const ReduceLoops& loops, const Scalar* params,
         ReduceOutput* outputs, int n_outputs)
      : loops_(loops),
        params_(params),
        outputs_(outputs),
        n_outputs_(n_outputs),
        data_(self.raw()),
        stored_(self.dtype()),
        element_(element),
        item_(size_of(element)),
        cast_(cast_fn(self.dtype(), element)) {
    const int64_t nd = self.dim(), item = self.itemsize();
    for (int64_t d = nd - 1, o = outputs[0].tensor.dim() - 1; d >= 0; --d) {
      const bool reduced = mask >> d & 1, in_out = !reduced || outputs[0].tensor.dim() == nd;
      const int64_t size = self->sizes[d];
      if (size != 1) {
        Dim dim{size, self->strides[d] * item, {0, 0}};
        for (int k = 0; !reduced && k < n_outputs; ++k)
          dim.out[k] = outputs[k].tensor->strides[o] * outputs[k].tensor.itemsize();
        insert(reduced ? reduced_ : kept_, reduced ? n_reduced_ : n_kept_, dim);
      }
      if (reduced)
        count_ *= size;
      else
        n_out_ *= size;
      if (in_out) --o;
    }
    merge(reduced_, n_reduced_);
    merge(kept_, n_kept_);
  }

  void run() {
    if (n_out_ == 0) return;
    if (n_reduced_ == 0) reduced_[n_reduced_++] = {count_, item_, {0, 0}};  // one element, or none
    whole_rows_ = loops_.many && n_reduced_ == 1 && stored_ == element_ && reduced_[0].stride == item_;
    const bool side_by_side = !whole_rows_ && n_kept_ && reduced_[0].size < kShortRow && kept_[0].size >= 16;
    const bool rows_inside = n_kept_ == 0 || (reduced_[0].stride < kept_[0].stride && !side_by_side);
    const int threads = num_threads();
    const int64_t work = n_out_ * count_;
    if (rows_inside) {
      columns_ = 1;
      column_dim_ = false;
      items_ = n_out_;
    } else {
      columns_ = kept_[0].size;
      column_dim_ = true;
      const int64_t outer = n_out_ / columns_;
      block_ = std::min(columns_, kColumnBlock);
      // Enough blocks for every thread, when the dimensions outside do not give them.
      if (work >= 2 * kGrain && outer < threads * 2)
        block_ = std::min(block_, std::max<int64_t>(256, (columns_ / (threads * 2) + 63) / 64 * 64));
      blocks_ = (columns_ + block_ - 1) / block_;
      items_ = outer * blocks_;
    }
    const int64_t last = reduced_[n_reduced_ - 1].size;
    // Few outputs and much to reduce: every thread takes a part of the outermost reduced dimension for all
    // outputs.
    if (work >= 2 * kGrain && threads > 1 && !in_parallel() && last >= threads * 4 &&
        (rows_inside ? items_ < threads * 2 : n_out_ <= 2048)) {
      if (column_dim_) {
        block_ = std::min(columns_, kColumnBlock);
        blocks_ = (columns_ + block_ - 1) / block_;
        items_ = n_out_ / columns_ * blocks_;
      }
      return run_split(
          thread_model::pieces_for(static_cast<double>(work) * thread_model::kGrainTime / kGrain), last,
          rows_inside ? 1 : block_);
    }
    parallel_for(items_, std::max<int64_t>(1, kGrain * items_ / std::max<int64_t>(work, 1)),
                 [&](int64_t begin, int64_t end) {
                   if (!column_dim_) return run_rows(begin, end, last);
                   Scratch acc(block_ * loops_.acc_size);
                   for (int64_t i = begin; i < end; ++i) {
                     const int64_t n = width(i);
                     loops_.init(acc.get(), n);
                     accumulate(i, 0, last, acc.get());
                     finish(i, n, acc.get());
                   }
                 });
  }

 private:
  static void insert(Dim* dims, int& n, const Dim& dim) {
    int at = n++;
    // Innermost (smallest stride) first; equal strides keep the order in which they come, which is inner to
    // outer.
    while (at > 0 && dims[at - 1].stride > dim.stride) {
      dims[at] = dims[at - 1];
      --at;
    }
    dims[at] = dim;
  }
  void merge(Dim* dims, int& n) const {
    int to = 0;
    for (int i = 1; i < n; ++i) {
      bool joins = dims[i].stride == dims[to].stride * dims[to].size;
      for (int k = 0; k < n_outputs_; ++k) joins &= dims[i].out[k] == dims[to].out[k] * dims[to].size;
      if (joins)
        dims[to].size *= dims[i].size;
      else
        dims[++to] = dims[i];
    }
    if (n > 0) n = to + 1;
  }

  int64_t width(int64_t item) const {
    return column_dim_ ? std::min(block_, columns_ - item % blocks_ * block_) : 1;
  }

  // Byte offset of the first element of an item, in the input and in the outputs.
  int64_t locate(int64_t item, int64_t* out) const {
    int64_t at = 0;
    out[0] = out[1] = 0;
    int first = 0;
    if (column_dim_) {
      const int64_t c = item % blocks_ * block_;
      item /= blocks_;
      at += c * kept_[0].stride;
      for (int k = 0; k < n_outputs_; ++k) out[k] += c * kept_[0].out[k];
      first = 1;
    }
    for (int d = first; d < n_kept_; ++d) {
      const int64_t i = item % kept_[d].size;
      item /= kept_[d].size;
      at += i * kept_[d].stride;
      for (int k = 0; k < n_outputs_; ++k) out[k] += i * kept_[d].out[k];
    }
    return at;
  }

  // Takes the elements of an item, restricted to [begin, end) of the outermost reduced dimension, into acc.
  void accumulate(int64_t item, int64_t begin, int64_t end, char* acc) const {
    int64_t ignored[2];
    accumulate_at(data_ + locate(item, ignored), width(item), begin, end, acc);
  }

  void accumulate_at(const char* at, int64_t columns, int64_t begin, int64_t end, char* acc) const {
    if (count_ == 0 || begin >= end) return;
    if (n_reduced_ == 1) {
      take(at + begin * reduced_[0].stride, end - begin, columns, acc, begin);
      return;
    }
    const int last = n_reduced_ - 1;
    int64_t index[64] = {};
    index[last] = begin;
    while (true) {
      const char* src = at;
      for (int d = 1; d <= last; ++d) src += index[d] * reduced_[d].stride;
      take(src, reduced_[0].size, columns, acc, 0);
      int d = 1;
      while (d < last && ++index[d] == reduced_[d].size) index[d++] = 0;
      if (d == last && ++index[last] == end) return;
    }
  }

  // One innermost run of n reduced elements, for `columns` accumulators side by side.
  void take(const char* src, int64_t n, int64_t columns, char* acc, int64_t base) const {
    const int64_t stride = reduced_[0].stride;
    if (!column_dim_) {
      if (stored_ == element_ && (stride == item_ || n == 1)) {
        loops_.row(src, n, acc, base, params_);
        return;
      }
      alignas(64) char stage[kStage * 16 / 2];
      const int64_t block = kStage * 8 / item_;
      for (int64_t i = 0; i < n; i += block) {
        const int64_t m = std::min(block, n - i);
        cast_(src + i * stride, stride, stage, item_, m);
        loops_.row(stage, m, acc, base + i, params_);
      }
      return;
    }
    const int64_t column_stride = kept_[0].stride;
    if (stored_ == element_ && (column_stride == item_ || columns == 1)) {
      loops_.column(src, stride, n, columns, acc, base, params_);
      return;
    }
    // Tiles of rows by columns, converted so that columns lie side by side.
    alignas(64) char stage[kStage * 16 / 2];
    const int64_t tile_columns = std::min<int64_t>(columns, 512);
    const int64_t tile_rows = std::max<int64_t>(1, std::min<int64_t>(n, kStage * 8 / item_ / tile_columns));
    for (int64_t r = 0; r < n; r += tile_rows) {
      const int64_t rows = std::min(tile_rows, n - r);
      for (int64_t c = 0; c < columns; c += tile_columns) {
        const int64_t m = std::min(tile_columns, columns - c);
        for (int64_t k = 0; k < rows; ++k)
          cast_(src + (r + k) * stride + c * column_stride, column_stride, stage + k * m * item_, item_, m);
        loops_.column(stage, m * item_, rows, m, acc + c * loops_.acc_size, base + r, params_);
      }
    }
  }

  void finish(int64_t item, int64_t n, const char* acc) const {
    int64_t at[2];
    locate(item, at);
    write(acc, n, at, column_dim_ ? kept_[0].out : nullptr);
  }

  void write(const char* acc, int64_t n, const int64_t* at, const int64_t* strides) const {
    void* to[2] = {nullptr, nullptr};
    char* final[2];
    bool direct = true;
    int64_t bytes = 0;
    for (int k = 0; k < n_outputs_; ++k) {
      const Tensor& t = outputs_[k].tensor;
      final[k] = t.raw() + at[k];
      to[k] = final[k];
      direct &= t.dtype() == outputs_[k].computed && (n == 1 || strides[k] == t.itemsize());
      bytes += (n * size_of(outputs_[k].computed) + 63) / 64 * 64;
    }
    if (direct) return loops_.finish(acc, n, count_, to, params_);
    Scratch results(bytes);
    char* next = results.get();
    for (int k = 0; k < n_outputs_; ++k) {
      to[k] = next;
      next += (n * size_of(outputs_[k].computed) + 63) / 64 * 64;
    }
    loops_.finish(acc, n, count_, to, params_);
    for (int k = 0; k < n_outputs_; ++k) {
      const Tensor& t = outputs_[k].tensor;
      cast_fn(outputs_[k].computed, t.dtype())(static_cast<const char*>(to[k]), size_of(outputs_[k].computed),
                                               final[k], n == 1 ? t.itemsize() : strides[k], n);
    }
  }

  // Outputs [begin, end) one after the other; neighbours along the innermost kept dimension are finished
  // together.
  void run_rows(int64_t begin, int64_t end, int64_t last) const {
    constexpr int64_t batch = 64;
    Scratch acc(batch * loops_.acc_size);
    const int64_t inner = n_kept_ ? kept_[0].size : 1;
    for (int64_t i = begin; i < end;) {
      const int64_t m = std::min({batch, end - i, inner - i % inner});
      int64_t at[2];
      const char* src = data_ + locate(i, at);
      loops_.init(acc.get(), m);
      if (whole_rows_ && n_kept_)
        loops_.many(src, kept_[0].stride, m, last, acc.get());
      else
        for (int64_t k = 0; k < m; ++k)
          accumulate_at(src + k * (n_kept_ ? kept_[0].stride : 0), 1, 0, last,
                        acc.get() + k * loops_.acc_size);
      write(acc.get(), m, at, n_kept_ ? kept_[0].out : nullptr);
      i += m;
    }
  }

  void run_split(int pieces, int64_t last, int64_t room) const {
    const int64_t bytes = (items_ * room * loops_.acc_size + 127) / 64 * 64;
    Scratch all(bytes * pieces);
    const int64_t piece = (last + pieces - 1) / pieces;
    const double time = double(n_out_) * count_ * thread_model::kGrainTime / kGrain;
    parallel_pieces(pieces, time, [&](int t, int) {
      char* acc = all.get() + t * bytes;
      const int64_t begin = std::min(last, t * piece), end = std::min(last, begin + piece);
      loops_.init(acc, items_ * room);
      for (int64_t i = 0; i < items_; ++i) accumulate(i, begin, end, acc + i * room * loops_.acc_size);
    });
    for (int t = 1; t < pieces; ++t) loops_.merge(all.get(), all.get() + t * bytes, items_ * room);
    for (int64_t i = 0; i < items_; ++i) finish(i, width(i), all.get() + i * room * loops_.acc_size);
  }

  const ReduceLoops& loops_;
  const Scalar* params_;
  ReduceOutput* outputs_;
  int n_outputs_;
  char* data_;
  DType stored_, element_;
  int64_t item_;
  CastFn cast_;
  Dim kept_[64], reduced_[64];
  int n_kept_ = 0, n_reduced_ = 0;
  int64_t n_out_ = 1, count_ = 1;
  int64_t columns_ = 1, block_ = 1, blocks_ = 1, items_ = 1;
  bool column_dim_ = false;
  bool whole_rows_ = false;  // each row lies in one piece that the loops take as it is
};

}  // namespace

void reduce(const Tensor& self, uint64_t mask, DType element, const ReduceLoops& loops, const Scalar* params,
            ReduceOutput* outputs, int n_outputs) {
  Engine(self, mask, element, loops, params, outputs, n_outputs).run();
}

namespace {
void reduce_record(const ReduceCall& call) {
  ReduceOutput output{call.out, call.def.computed[call.slot]};
  reduce(call.self, call.mask, reduce_element(call.slot), call.def.loops[call.slot], call.params, &output, 1);
}
FL_ATTACH(reduce, CPU, reduce_record);
}  // namespace

}  // namespace fl
