// The host's part of generated kernels: which kernel, with which parameters, on how many blocks.
#include <algorithm>
#include <cstring>
#include <map>

#include "cuda/engine/generated.h"
#include "cuda/engine/kernels.h"
#include "cuda/runtime/launch.h"
#include "ops/iterator.h"

namespace fl::cuda {

namespace {

constexpr int64_t kMostElements = (int64_t(1) << 31) - (1 << 20);  // of one launch

template <class Args>
void launch(void (*kernel)(const Args), dim3 grid, dim3 block, const Args& args, const char* what) {
  cuda::launch(kernel, grid, block, current_stream(), what, args);
}

bool is_real(DType t) {
  return !is_stored_only(t) && !is_complex(t);
}

void refuse(const char* op, DType t) {
  fail(ErrorKind::NotImplemented, "[", op, "] expected a dtype that CUDA kernels compute with, got ",
       name_of(t));
}

uint64_t bits_of(const Scalar& s, bool floating) {
  uint64_t bits;
  if (floating) {
    const double x = s.to<double>();
    std::memcpy(&bits, &x, 8);
  } else {
    const int64_t x = s.to<int64_t>();
    std::memcpy(&bits, &x, 8);
  }
  return bits;
}

bool vectorises(DType t) {
  return t == DType::Float || t == DType::BFloat16 || t == DType::Half || t == DType::Bool ||
         t == DType::UInt8;
}
bool aligned(const void* p, DType t) {
  return reinterpret_cast<uintptr_t>(p) % std::min<int64_t>(16, size_of(t) * kVector) == 0;
}

// Strided operands as kernels take them: merged dimensions, innermost first. Operand 0 is written.
struct Walk {
  Dims sizes;
  int count = 0;
  char* data[5];
  Dims strides[5];  // bytes
};

Walk walk(const StridedIterator& it) {
  Walk w;
  w.sizes = it.sizes();
  w.count = it.operands();
  for (int k = 0; k < w.count; ++k) {
    w.data[k] = it.operand(k).data;
    w.strides[k] = it.operand(k).strides;
    w.strides[k].resize(w.sizes.size());
  }
  return w;
}

// Calls f for pieces of the walk that one launch can take.
template <class F>
void pieces(Walk& w, F&& f) {
  int64_t n = 1;
  for (int64_t s : w.sizes) n *= s;
  const size_t last = w.sizes.size();
  if (n <= kMostElements && last <= kMaxDims) return f(w, n);
  const size_t d = last - 1;
  const int64_t size = w.sizes[d];
  // Split the outermost dimension into two halves, or take it away when it is the dimensions that are too
  // many.
  const bool drop = last > kMaxDims || size == 1;
  const int64_t step = drop ? 1 : (size + 1) / 2;
  for (int64_t begin = 0; begin < size; begin += step) {
    Walk part = w;
    for (int k = 0; k < w.count; ++k) part.data[k] += begin * w.strides[k][d];
    part.sizes[d] = std::min(step, size - begin);
    if (drop) {
      part.sizes.resize(d);
      for (int k = 0; k < w.count; ++k) part.strides[k].resize(d);
    }
    pieces(part, f);
  }
}

template <int N>
void fill_geometry(Geometry<N>& g, const Walk& w) {
  g.ndim = static_cast<int>(w.sizes.size());
  for (int d = 0; d < g.ndim; ++d) {
    g.size[d] = Divider(static_cast<uint32_t>(w.sizes[d]));
    for (int k = 0; k < N; ++k) g.stride[k][d] = k < w.count ? w.strides[k][d] : 0;
  }
}

dim3 blocks_for(int64_t n, int64_t per_block) {
  return dim3(static_cast<unsigned>(std::min<int64_t>((n + per_block - 1) / per_block, 1 << 30)));
}

}  // namespace

// Whether rows can be taken eight elements at a time; if so the geometry is changed to count them.
static bool rows_of_vectors(PointwiseArgs& args, int operands, const Walk& w) {
  if (w.sizes.empty() || w.sizes[0] % kVector != 0 || w.strides[0][0] != args.out_size) return false;
  const auto fits = [&](const char* data, DType dtype, int size, int k) {
    const int64_t unit = std::min<int64_t>(16, int64_t(size) * kVector);
    if (!aligned(data, dtype)) return false;
    for (size_t d = 1; d < w.sizes.size(); ++d)
      if (w.strides[k][d] % unit != 0) return false;
    return true;
  };
  if (!fits(args.out, args.out_dtype, args.out_size, 0)) return false;
  uint8_t repeated = 0;
  for (int i = 0; i < operands; ++i) {
    if (args.constants >> i & 1) continue;
    if (w.strides[i + 1][0] == 0)
      repeated |= 1 << i;
    else if (w.strides[i + 1][0] != args.in_size[i] ||
             !fits(args.in[i], args.in_dtype[i], args.in_size[i], i + 1))
      return false;
  }
  args.repeated = repeated;
  args.geometry.size[0] = Divider(static_cast<uint32_t>(w.sizes[0] / kVector));
  for (int k = 0; k < 5; ++k) args.geometry.stride[k][0] *= kVector;
  return true;
}

// Complex numbers, by the one kernel that takes any strides and dtypes.
static void run_complex(const PointwiseCall& call, const PointwiseTable* table) {
  const ComplexKernel kernel =
      table->complex ? table->complex->kernels[call.chosen >= 0 ? 0 : call.variant] : nullptr;
  if (!kernel || is_stored_only(call.out.dtype())) refuse(call.def.name, call.common);
  OnDevice on(call.out.device().index);
  ComplexArgs args{};
  const auto split = [](const Scalar& s, uint64_t& real, double& imaginary) {
    const complex128 z = s.to<complex128>();
    const double re = z.real();
    std::memcpy(&real, &re, 8);
    imaginary = z.imag();
  };
  for (int p = 0; p < call.def.params; ++p) split(call.params[p], args.param[p], args.imaginary_param[p]);
  args.out_dtype = call.out.dtype();
  Tensor held[4];
  StridedIterator it(call.out.sizes());
  it.add(call.out, call.out.dtype());
  static const double zero = 0;
  for (int i = 0; i < call.operands; ++i) {
    const Value& v = *call.operand[i];
    if (v.is_tensor() && v.tensor_impl()->device.type == DeviceType::CUDA) {
      held[i] = v.tensor();
      if (is_stored_only(held[i].dtype())) refuse(call.def.name, held[i].dtype());
      args.in_dtype[i] = held[i].dtype();
      it.add(held[i], held[i].dtype());
    } else {
      args.constants |= 1 << i;
      split(v.is_tensor() ? item(v.tensor()) : v.to_scalar(), args.constant[i], args.imaginary_constant[i]);
      it.add_scalar(&zero, DType::Double);
    }
  }
  it.finish();
  Walk w = walk(it);
  pieces(w, [&](const Walk& part, int64_t count) {
    args.n = static_cast<uint32_t>(count);
    args.out = part.data[0];
    for (int i = 0; i < call.operands; ++i)
      if (!(args.constants >> i & 1)) args.in[i] = part.data[i + 1];
    fill_geometry(args.geometry, part);
    launch(kernel, blocks_for(count, 256), 256, args, call.def.name);
  });
}

// The operands of a call: where tensors lie, and the numbers among them.
struct Operands {
  Tensor tensors[4];  // undefined for numbers
  bool flat = false;  // all lie like the result, without gaps
  bool wide = false;  // all can be read by vectors
};

static Operands bind_operands(const PointwiseCall& call, bool has_vectors, PointwiseArgs& args) {
  const bool floating = call.slot == kSlotFloat || call.slot == kSlotDouble;
  Operands operands;
  operands.flat = call.same && call.out.is_contiguous();
  operands.wide = has_vectors && vectorises(args.out_dtype);
  for (int i = 0; i < call.operands; ++i) {
    const Value& v = *call.operand[i];
    if (v.is_tensor() && v.tensor_impl()->device.type == DeviceType::CUDA) {
      Tensor t = v.tensor();
      // A tensor without dimensions does not widen the others: its value may have to wrap around first.
      if (call.compute == DType::Int64 && t.dim() == 0 && t.dtype() != call.common &&
          !(call.def.mask >> i & 1))
        t = to_dtype(t, call.common);
      if (!is_real(t.dtype())) refuse(call.def.name, t.dtype());
      args.in[i] = t.raw();
      args.in_dtype[i] = t.dtype();
      args.in_size[i] = static_cast<int8_t>(t.itemsize());
      operands.flat &= t.is_contiguous() && t.numel() == call.out.numel();
      operands.wide &= vectorises(t.dtype()) && aligned(t.raw(), t.dtype());
      operands.tensors[i] = std::move(t);
    } else {
      Scalar s = v.is_tensor() ? item(v.tensor()) : v.to_scalar();
      if (call.compute == DType::Int64 && call.common != DType::Int64 && v.is_tensor())
        s = dispatch(call.common, [&](auto type) -> Scalar {
          using T = typename decltype(type)::type;
          if constexpr (std::is_integral_v<T>)
            return Scalar(static_cast<int64_t>(s.to<T>()));
          else
            return s;
        });
      args.constants |= 1 << i;
      args.constant[i] = bits_of(s, floating);
    }
  }
  return operands;
}

// One launch over all elements in the order in which they lie.
static void run_flat(const PointwiseCall& call, const PointwiseKernels& kernels, bool wide,
                     PointwiseArgs& args) {
  const int64_t n = call.out.numel();
  args.out = call.out.raw();
  args.n = static_cast<uint32_t>(n);
  if (wide && aligned(args.out, args.out_dtype))
    return launch<FlatArgs>(kernels.vector, blocks_for(n, 256 * kVector), 256, args, call.def.name);
  args.geometry.ndim = 1;
  args.geometry.size[0] = Divider(static_cast<uint32_t>(n));
  args.geometry.stride[0][0] = args.out_size;
  for (int i = 0; i < call.operands; ++i)
    args.geometry.stride[i + 1][0] = args.constants >> i & 1 ? 0 : args.in_size[i];
  return launch(kernels.strided, blocks_for(n, 256), 256, args, call.def.name);
}

void run_pointwise(const PointwiseCall& call) {
  const auto* table = static_cast<const PointwiseTable*>(call.def.device);
  if (table && call.chosen >= 0) table = table->case_tables[call.chosen];
  FL_CHECK_KIND(table != nullptr, NotImplemented, "[", call.def.name,
                "] expected an operator with a CUDA kernel");
  if (call.slot > kSlotBool) return run_complex(call, table);
  if (is_complex(call.out.dtype())) {
    const Tensor converted = empty(call.out.sizes(), {call.result, call.out.device()});
    run_pointwise({call.def, call.variant, call.chosen, call.slot, call.loop, call.operand, call.operands,
                   converted, call.common, call.compute, call.result, call.params, false});
    return copy_into(call.out, converted);
  }
  if (!is_real(call.out.dtype())) refuse(call.def.name, call.common);
  const PointwiseKernels& kernels = table->kernels[call.chosen >= 0 ? 0 : call.variant][call.slot];
  if (!kernels.strided) refuse(call.def.name, call.common);
  const bool floating = call.slot == kSlotFloat || call.slot == kSlotDouble;
  OnDevice on(call.out.device().index);
  PointwiseArgs args{};  // no byte of it is left to chance: equal calls have equal parameters
  for (int p = 0; p < call.def.params; ++p) args.param[p] = bits_of(call.params[p], floating);
  args.out_dtype = call.out.dtype();
  args.out_size = static_cast<int8_t>(call.out.itemsize());

  const Operands operands = bind_operands(call, kernels.vector != nullptr, args);
  if (operands.flat && call.out.numel() <= kMostElements) return run_flat(call, kernels, operands.wide, args);
  StridedIterator it(call.out.sizes());
  it.add(call.out, call.out.dtype());
  static const double zero = 0;
  for (int i = 0; i < call.operands; ++i) {
    if (operands.tensors[i].defined())
      it.add(operands.tensors[i], operands.tensors[i].dtype());
    else
      it.add_scalar(&zero, DType::Double);
  }
  it.finish();
  Walk w = walk(it);
  pieces(w, [&](const Walk& part, int64_t count) {
    args.n = static_cast<uint32_t>(count);
    args.out = part.data[0];
    args.repeated = 0;
    bool line = operands.wide && part.sizes.size() <= 1 && aligned(args.out, args.out_dtype);
    if (line && !part.sizes.empty()) line = part.strides[0][0] == args.out_size;
    for (int i = 0; i < call.operands; ++i) {
      if (args.constants >> i & 1) continue;
      args.in[i] = part.data[i + 1];
      line &= aligned(args.in[i], args.in_dtype[i]) && !part.sizes.empty() &&
              part.strides[i + 1][0] == args.in_size[i];
    }
    if (line)
      return launch<FlatArgs>(kernels.vector, blocks_for(count, 256 * kVector), 256, args, call.def.name);
    fill_geometry(args.geometry, part);
    if (kernels.rows && operands.wide && rows_of_vectors(args, call.operands, part)) {
      args.n = static_cast<uint32_t>(count / kVector);
      return launch(kernels.rows, blocks_for(args.n, 256), 256, args, call.def.name);
    }
    launch(kernels.strided, blocks_for(count, 256), 256, args, call.def.name);
  });
}

// ---------------------------------------------------------------- reductions

namespace {

struct MergedDim {
  int64_t size, in, out;
};

// Innermost first, neighbours joined where they lie so.
void merge(std::vector<MergedDim>& dims) {
  std::stable_sort(dims.begin(), dims.end(),
                   [](const MergedDim& a, const MergedDim& b) { return a.in < b.in; });
  size_t to = 0;
  for (size_t i = 1; i < dims.size(); ++i) {
    if (dims[i].in == dims[to].in * dims[to].size && dims[i].out == dims[to].out * dims[to].size)
      dims[to].size *= dims[i].size;
    else
      dims[++to] = dims[i];
  }
  if (!dims.empty()) dims.resize(to + 1);
}

}  // namespace

void run_reduce(const ReduceCall& call) {
  const auto* table = static_cast<const ReduceTable*>(call.def.device);
  static const int slots[kReduceSlots] = {kFloat, kDouble, kInt, kBool, kFloat, -1, -1};
  FL_CHECK_KIND(table != nullptr, NotImplemented, "[", call.def.name,
                "] expected an operator with a CUDA kernel");
  const int slot = slots[call.slot];
  static const ReduceKernels none;
  const ReduceKernels& kernels = slot >= 0 ? table->kernels[slot] : table->complex ? *table->complex : none;
  if (!kernels.rows || is_stored_only(call.self.dtype()) || (slot >= 0 && is_complex(call.self.dtype())))
    refuse(call.def.name, call.self.dtype());
  double params[2] = {};
  for (int p = 0; p < call.def.params; ++p) params[p] = call.params[p].to<double>();
  reduce_by(kernels, call.def.name, call.self, call.mask, call.out, Tensor(), params);
}

// The dimensions of a reduction, merged where they can be: those of the results and those that are reduced.
struct ReduceDims {
  std::vector<MergedDim> remaining, reduced;
  int64_t count = 1, outputs = 1;  // elements of each result, and results
};

static ReduceDims reduce_dims(const char* op, const Tensor& self, uint64_t mask, const Tensor& result) {
  ReduceDims dims;
  const int64_t item = self.itemsize();
  for (int64_t d = self.dim() - 1, o = result.dim() - 1; d >= 0; --d) {
    const bool is_reduced_dim = mask >> d & 1, in_out = !is_reduced_dim || result.dim() == self.dim();
    const int64_t size = self.size(d);
    if (size != 1)
      (is_reduced_dim ? dims.reduced : dims.remaining)
          .push_back({size, self.stride(d) * item, is_reduced_dim ? 0 : result.stride(o)});
    (is_reduced_dim ? dims.count : dims.outputs) *= size;
    if (in_out) --o;
  }
  merge(dims.remaining);
  merge(dims.reduced);
  FL_CHECK(dims.remaining.size() <= kMaxDims && dims.reduced.size() <= kMaxDims &&
               dims.count <= kMostElements && dims.outputs <= kMostElements,
           "[", op, "] expected at most 2**31 elements on each side of a CUDA reduction, got ", dims.outputs,
           " results of ", dims.count);
  if (dims.reduced.empty()) dims.reduced.push_back({dims.count, item, 0});
  return dims;
}

static ReduceArgs reduce_args(const Tensor& self, const Tensor& out, const Tensor& second,
                              const ReduceDims& dims, const double (&params)[2]) {
  const auto& [remaining, reduced, count, outputs] = dims;
  const int64_t item = self.itemsize();
  ReduceArgs args{};
  args.in = self.raw();
  args.in_dtype = self.dtype();
  args.in_item = static_cast<int8_t>(item);
  const auto place = [](const Tensor& t, char*& data, DType& dtype, int8_t& size) {
    if (!t.defined()) return;
    data = t.raw();
    dtype = t.dtype();
    size = static_cast<int8_t>(t.itemsize());
  };
  place(out, args.out, args.out_dtype, args.out_item);
  place(second, args.second, args.second_dtype, args.second_item);
  std::copy(params, params + 2, args.param);
  args.count = count;
  args.outputs = static_cast<uint32_t>(outputs);
  args.length = static_cast<uint32_t>(count);
  args.kept.ndim = static_cast<int>(remaining.size());
  for (int d = 0; d < args.kept.ndim; ++d) {
    args.kept.size[d] = Divider(static_cast<uint32_t>(remaining[d].size));
    args.kept.stride[0][d] = remaining[d].in;
    args.kept.stride[1][d] = remaining[d].out;
  }
  args.reduced.ndim = static_cast<int>(reduced.size());
  for (int d = 0; d < args.reduced.ndim; ++d) {
    args.reduced.size[d] = Divider(static_cast<uint32_t>(std::max<int64_t>(reduced[d].size, 1)));
    args.reduced.stride[0][d] = reduced[d].in;
  }
  args.contiguous = reduced.size() == 1;  // any one stride
  args.unit = static_cast<int8_t>(std::min<int64_t>(16, item * kVector));
  return args;
}

void reduce_by(const ReduceKernels& kernels, const char* op, const Tensor& self, uint64_t mask,
               const Tensor& out, const Tensor& second, const double (&params)[2]) {
  OnDevice on(self.device().index);
  const ReduceDims dims = reduce_dims(op, self, mask, out.defined() ? out : second);
  const auto& [remaining, reduced, count, outputs] = dims;
  ReduceArgs args = reduce_args(self, out, second, dims, params);
  const int64_t item = self.itemsize();
  const auto in_vectors = [&](const std::vector<MergedDim>& side) {
    return side[0].in == item && side[0].size % kVector == 0;
  };
  const auto outer_fit = [&](const std::vector<MergedDim>& side) {
    return std::all_of(side.begin() + 1, side.end(),
                       [&](const MergedDim& f) { return f.in % args.unit == 0; });
  };
  const bool eights = kernels.by_eight && kernels.by_eight(args.in_dtype);
  args.wide = eights && (args.contiguous ? reduced[0].in == item : in_vectors(reduced) && outer_fit(reduced));
  const bool columns = !remaining.empty() && remaining[0].in < reduced[0].in && outputs >= 16;
  const bool short_rows = !columns && count <= 1024 && outputs > 64;

  // Enough blocks for the whole device; each part is worth a block.
  const int64_t wanted = int64_t(properties(current_device()).multiProcessorCount) * 4;
  const bool by_eight = columns && eights && kernels.wide_columns && args.contiguous &&
                        in_vectors(remaining) && reinterpret_cast<uintptr_t>(args.in) % args.unit == 0 &&
                        reduced[0].in % args.unit == 0 && outer_fit(remaining);
  const int64_t blocks = by_eight ? (outputs + 255) / 256 : columns ? (outputs + 31) / 32 : outputs;
  const int64_t least = columns ? 64 : 8192;
  int64_t parts = 1;
  if (!short_rows && blocks < wanted && count > 2 * least)
    parts = std::min({(wanted + blocks - 1) / blocks, (count + least - 1) / least, int64_t(1024)});
  const int64_t part = std::max<int64_t>(16, (((count + parts - 1) / parts) + 15) / 16 * 16);
  parts = std::max<int64_t>(1, (count + part - 1) / part);
  args.part = static_cast<uint32_t>(part);
  args.parts = static_cast<uint32_t>(parts);
  const int device = current_device();
  Scratch partial(parts > 1 ? parts * outputs * kernels.accumulator : 0, device, current_stream());
  args.partial = partial.get();
  const unsigned n_parts = args.parts;
  if (columns) {
    launch(by_eight ? kernels.wide_columns : kernels.columns, dim3(static_cast<unsigned>(blocks), n_parts),
           dim3(32, 8), args, op);
  } else if (short_rows) {
    while (args.group_bits < 5 && count > kVector << args.group_bits) ++args.group_bits;
    launch(kernels.groups, blocks_for(outputs, 256 >> args.group_bits), 256, args, op);
  } else {
    // Two vectors or more for each thread, so that reducing across the block costs little beside them.
    const unsigned threads = part >= 16384 ? 512 : part >= 8192 ? 256 : part >= 2048 ? 128 : 64;
    launch(kernels.rows, dim3(static_cast<unsigned>(std::min<int64_t>(outputs, 1 << 30)), n_parts), threads,
           args, op);
  }
  if (parts > 1) {
    const bool many = args.outputs >= kFinishByColumns;
    launch(kernels.finish, many ? blocks_for(outputs, 32) : dim3(args.outputs), 256, args, op);
  }
}

// ---------------------------------------------------------------- updates

void run_update(const UpdateCall& call) {
  const auto* table = static_cast<const UpdateTable*>(call.def.device);
  FL_CHECK_KIND(table != nullptr, NotImplemented, "[", call.def.name,
                "] expected an operator with a CUDA kernel");
  if (call.length == 0) return;
  OnDevice on(call.lists[0][0].device().index);
  UpdateArgs args{};
  // Scalar states on the device are read there, so that nobody waits.
  const size_t row = call.values ? 0 : std::max(call.def.values, 1);
  Scratch rows(call.length * row * sizeof(double), current_device(), current_stream());
  if (!call.values) {
    UpdateOnceArgs once{};
    std::copy(call.numbers, call.numbers + call.def.numbers, once.number);
    for (size_t first = 0; first < call.length; first += kUpdateTensors) {
      once.count = static_cast<int>(std::min<size_t>(call.length - first, kUpdateTensors));
      once.rows = rows.as<double>() + first * row;
      for (int k = 0; k < call.def.scalars; ++k)
        for (int i = 0; i < once.count; ++i) {
          once.scalar[k][i] = call.scalars[k][first + i].raw();
          once.dtype[k][i] = call.scalars[k][first + i].dtype();
        }
      launch(table->once, 1, 32, once, call.def.name);
    }
    args.rows = rows.as<double>();
  }
  int tensors = 0;
  int64_t blocks = 0;
  const double* values = nullptr;
  bool wide = false;
  const auto flush = [&] {
    std::fill(args.first + tensors, args.first + kUpdateTensors, UINT32_MAX);
    if (blocks)
      launch(wide ? table->twice : table->single, dim3(static_cast<unsigned>(blocks)), kUpdateThreads, args,
             call.def.name);
    tensors = 0;
    blocks = 0;
  };
  for (size_t i = 0; i < call.length; ++i) {
    const int64_t numel = call.lists[0][i].numel();
    if (numel == 0) continue;
    bool doubles = false;
    for (int k = 0; k < call.def.lists; ++k) doubles |= call.lists[k][i].dtype() == DType::Double;
    const double* own = call.values ? call.values[i] : nullptr;
    const int64_t chunks = (numel + kUpdateChunk - 1) / kUpdateChunk;
    FL_CHECK(chunks < int64_t(1) << 31, "[", call.def.name,
             "] expected tensors of less than 2**42 elements, got ", numel);
    if (tensors == kUpdateTensors || blocks + chunks >= int64_t(1) << 31 ||
        (tensors && (values != own || wide != doubles)))
      flush();
    values = own;
    wide = doubles;
    if (values) std::copy(values, values + call.def.values, args.value);
    for (int k = 0; k < call.def.lists; ++k) {
      args.data[k][tensors] = call.lists[k][i].raw();
      args.dtype[k][tensors] = call.lists[k][i].dtype();
    }
    args.row[tensors] = static_cast<uint32_t>(i);
    args.first[tensors] = static_cast<uint32_t>(blocks);
    args.numel[tensors++] = numel;
    blocks += chunks;
  }
  flush();
}

// ---------------------------------------------------------------- registration

void by_definition(const Operator& op, KeySet keys, Value* args, Value* results) {
  const Kernel other = OperatorTable::get().fallback(Key::CUDA);
  other.fn(op, other.context, keys, args, results);
}

void check_on_device(const Operator& op, const Value* args) {
  const auto each = [&](auto&& look) {
    for (size_t i = 0; i < op.schema.args.size(); ++i) {
      if (args[i].is_tensor()) look(args[i].tensor_impl());
      if (args[i].is_tensor_list())
        for (size_t j = 0; j < args[i].length(); ++j)
          if (args[i].tensors()[j].defined()) look(args[i].tensors()[j].impl());
    }
  };
  const TensorImpl* here = nullptr;  // the first one on a device of this kind
  each([&](const TensorImpl* t) {
    if (!here && t->device.type == DeviceType::CUDA) here = t;
  });
  each([&](const TensorImpl* t) {
    FL_CHECK(here && t->device == here->device, "[", op.schema.name,
             "] expected all tensors on one device, got ", to_string(t->device), " and ",
             here ? to_string(here->device) : "none on cuda");
  });
}

namespace {

Tensor without_data(const TensorImpl& t) {
  return empty_strided(t.sizes, t.strides, {t.dtype, Device{DeviceType::Meta}});
}

// Kernels that serve all devices look at their first tensor: here the others are looked at too.
void shared_kernel(const Operator& op, void* context, KeySet keys, Value* args, Value* results) {
  check_on_device(op, args);
  const Kernel& own = *static_cast<const Kernel*>(context);
  own.fn(op, own.context, keys, args, results);
}

// Recurrent layers step over rows in the order of time on the device, whatever the order in memory.
void laid_out_kernel(const Operator& op, void* context, KeySet keys, Value* args, Value* results) {
  check_on_device(op, args);
  const Described described(op, args);
  const Kernel& own = *static_cast<const Kernel*>(context);
  own.fn(op, own.context, keys, args, results);
  described.lay_out(results);
}

void guard_shared_kernels(OperatorTable& table) {
  for (Operator* op : table.all()) {
    const Kernel own = op->kernel(Key::CUDA);
    int tensors = 0;
    for (const Argument& a : op->schema.args)
      if (a.type == ArgType::Tensor) tensors += a.list ? 2 : 1;
    if (!own || tensors < 2 || own.fn != op->kernel(Key::CPU).fn || own.context ||
        op->flags & (kView | kMixedDevices))
      continue;
    const auto guarded = op->flags & kMetaLayout ? laid_out_kernel : shared_kernel;
    op->set_kernel(Key::CUDA, Kernel{guarded, new Kernel(own)});
  }
}

}  // namespace

Described::Described(const Operator& op, const Value* args) : results_(op.n_results()) {
  const Kernel own = op.kernel(Key::Meta);
  if (!own) return;
  const size_t n = op.schema.args.size();
  std::vector<Value> meta_args(n);
  for (size_t i = 0; i < n; ++i) {
    const Value& v = args[i];
    switch (v.tag()) {
      case Value::Tag::Tensor:
        meta_args[i] = Value(without_data(*v.tensor_impl()));
        break;
      case Value::Tag::TensorList: {
        std::vector<Tensor> list;
        for (size_t j = 0; j < v.length(); ++j)
          list.push_back(v.tensors()[j].defined() ? without_data(*v.tensors()[j].impl()) : Tensor());
        meta_args[i] = Value(list);
        break;
      }
      case Value::Tag::IntList:
        meta_args[i] = Value::borrow(v.ints());
        break;
      case Value::Tag::String:
        meta_args[i] = Value::borrow(v.string());
        break;
      default:
        meta_args[i] = v;
    }
  }
  own.fn(op, own.context, KeySet(Key::Meta), meta_args.data(), results_.data());
}

void Described::lay_out(Value* results) const {
  for (size_t i = 0; i < results_.size(); ++i) {
    if (!results_[i].is_tensor() || !results[i].is_tensor()) continue;
    const TensorImpl &want = *results_[i].tensor_impl(), &got = *results[i].tensor_impl();
    if (want.sizes != got.sizes) continue;
    bool alike = true;
    for (size_t d = 0; d < want.sizes.size(); ++d)
      alike &= want.sizes[d] == 1 || want.strides[d] == got.strides[d];
    if (alike || numel_of(want.sizes) == 0) continue;
    const Tensor out = empty_strided(want.sizes, want.strides, {got.dtype, got.device});
    copy_into(out, results[i].tensor());
    results[i] = Value(out);
  }
}

void attach_generated_kernels() {
  OperatorTable& table = OperatorTable::get();
  const Generated& all = generated();
  std::map<std::string, PointwiseTable*> by_name;
  for (int i = 0; i < all.n_pointwise; ++i) by_name[all.pointwise[i]->name] = all.pointwise[i];
  std::map<std::string, const ComplexReduceTable*> complex_reductions;
  for (int i = 0; i < all.n_complex; ++i) by_name[all.complex[i]->name]->complex = all.complex[i];
  for (int i = 0; i < all.n_complex_reductions; ++i)
    complex_reductions[all.complex_reductions[i]->name] = all.complex_reductions[i];
  // The operator's own kernel serves the device too: it settles geometry and dtypes, then calls back.
  const auto share = [](Operator* op) {
    if (op && op->kernel(Key::CPU)) op->set_kernel(Key::CUDA, op->kernel(Key::CPU));
  };
  for (auto& [name, kernels] : by_name) {
    for (size_t c = 0; c < std::size(kernels->cases); ++c)
      if (kernels->cases[c]) kernels->case_tables[c] = by_name[kernels->cases[c]];
    Operator* op = table.find(name);
    if (!op || op->kernel(Key::CPU).fn != pointwise_kernel) continue;
    static_cast<PointwiseDef*>(op->kernel(Key::CPU).context)->device = kernels;
    share(op);
    share(op->inplace);
    share(op->out);
  }
  for (int i = 0; i < all.n_reductions; ++i) {
    Operator* op = table.find(all.reductions[i]->name);
    if (!op || op->kernel(Key::CPU).fn != reduce_kernel) continue;
    const auto complex = complex_reductions.find(all.reductions[i]->name);
    if (complex != complex_reductions.end()) all.reductions[i]->complex = &complex->second->kernels;
    static_cast<ReduceDef*>(op->kernel(Key::CPU).context)->device = all.reductions[i];
    share(op);
  }
  for (int i = 0; i < all.n_updates; ++i) {
    Operator* op = table.find(all.updates[i]->name);
    if (!op || op->kernel(Key::CPU).fn != update_kernel) continue;
    static_cast<UpdateDef*>(op->kernel(Key::CPU).context)->device = all.updates[i];
    share(op);
  }
  guard_shared_kernels(table);
}

FL_ATTACH(pointwise, CUDA, run_pointwise);
FL_ATTACH(reduce, CUDA, run_reduce);
FL_ATTACH(update, CUDA, run_update);

}  // namespace fl::cuda
