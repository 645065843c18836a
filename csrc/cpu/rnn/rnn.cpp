// Recurrent layers: one direction of one layer over all time steps, and its derivative.
//
// The products with the input are one product over all steps; each step multiplies the hidden state and
// passes the gates through the row kernels. Samples of a batch do not meet within the recurrence, so threads
// share out the batch and need not wait for each other. In the derivative the steps only propagate the
// state's gradient; the gradients of input and weights are again products over all steps.
//
// Rows of gates and outputs lie in the order of the input: time before batch, batch before time where the
// caller transposed a tensor of that order, or packed, with the samples of each step that are long enough.
#include <cstring>
#include <vector>

#include "core/accelerator.h"
#include "core/parallel.h"
#include "cpu/engine/arch.h"
#include "cpu/gemm/gemm.h"
#include "cpu/rnn/kernel.h"
#include "dispatch/kernel.h"
#include "ops/rnn.h"

namespace fl {

FL_DECLARE_ARCH(const RecurrentTable, recurrent_table);

template <class T>
static const RecurrentRows<T>& recurrent_rows() {
  if constexpr (std::is_same_v<T, float>)
    return picked_recurrent_table().f;
  else
    return picked_recurrent_table().d;
}

namespace {

using namespace rnn;

Steps steps_of(const Tensor& input, IntSpan batch_sizes, bool reverse) {
  Steps s;
  s.reverse = reverse;
  s.packed = input.dim() == 2;
  if (s.packed) {
    FL_CHECK(!batch_sizes.empty(), "[rnn] expected batch_sizes for packed data, got none");
    s.batch = batch_sizes[0];
    for (const int64_t n : batch_sizes) {
      FL_CHECK(n > 0 && n <= (s.count.empty() ? s.batch : s.count.back()),
               "[rnn] expected batch_sizes that are positive and do not increase, got ", batch_sizes);
      s.first.push_back(s.rows);
      s.count.push_back(n);
      s.rows += n;
    }
    FL_CHECK(s.rows == input.size(0), "[rnn] expected batch_sizes that add up to the ", input.size(0),
             " rows of data, got ", s.rows);
    return s;
  }
  const int64_t length = input.size(0);
  s.batch = input.size(1);
  s.rows = length * s.batch;
  s.batch_major = input.device().type != DeviceType::CUDA && s.batch > 1 && length > 1 &&
                  input.stride(1) > input.stride(0);
  s.apart = s.batch_major ? length : 1;
  for (int64_t t = 0; t < length; ++t) {
    s.first.push_back(s.batch_major ? t : t * s.batch);
    s.count.push_back(s.batch);
  }
  return s;
}

// A new tensor over the rows: (rows, width) when packed, else (time, batch, width) in the rows' order.
Tensor row_tensor(const Steps& s, int64_t width, Options options) {
  if (s.packed) return empty({s.rows, width}, options);
  const int64_t length = s.size();
  if (!s.batch_major) return empty({length, s.batch, width}, options);
  return empty_strided({length, s.batch, width}, {width, length * width, 1}, options);
}

// The values of a tensor over the rows as one run of memory in the rows' order.
Tensor in_row_order(const Tensor& t, const Steps& s, DType dtype) {
  const Tensor x = to_dtype(t, dtype);
  if (!s.batch_major) return contiguous(x);
  return contiguous(
      alias(x, {x.size(1), x.size(0), x.size(2)}, {x.stride(1), x.stride(0), x.stride(2)}, x.offset()));
}

Tensor as_run(const Tensor& t, DType dtype) {
  return t.defined() ? contiguous(to_dtype(t, dtype)) : t;
}

// A matrix with its columns one after the other, as products with rows read it; one that lies so is not
// copied.
Tensor transposed(const Tensor& t, DType dtype) {
  const Tensor x = to_dtype(t, dtype);
  return contiguous(alias(x, {x.size(1), x.size(0)}, {x.stride(1), x.stride(0)}, x.offset()));
}

template <class T>
const T* pointer(const Tensor& t) {
  return t.defined() ? t.data<T>() : nullptr;
}

template <class T>
struct Product {
  GemmArgs args;
  Product(int64_t m, int64_t n, int64_t k) {
    args.dtype = sizeof(T) == 4 ? DType::Float : DType::Double;
    args.m = m, args.n = n, args.k = k;
  }
  Product& a(const T* p, int64_t row, int64_t col = 1) {
    args.a = p, args.a_row = row, args.a_col = col;
    return *this;
  }
  Product& b(const T* p, int64_t row, int64_t col = 1) {
    args.b = p, args.b_row = row, args.b_col = col;
    return *this;
  }
  Product& bias(const T* p) {
    args.bias = p;
    return *this;
  }
  void into(T* p, int64_t row, bool add = false) {
    args.c = p, args.c_row = row;
    args.beta = add ? 1.0 : 0.0;
    cpu::gemm(args);
  }
};

// Calls f(begin, end) on shares of the batch; on all of it when a share would be too small to multiply well.
template <class F>
void over_batch(const Steps& s, int64_t work, const F& f) {
  constexpr int64_t least = 4;  // samples of a share
  const bool alone = s.batch < 2 * least || s.rows * work < 400000;
  parallel_for(s.batch, alone ? s.batch : std::max(least, (s.batch + num_threads() - 1) / num_threads()), f);
}

// ---------------------------------------------------------------- forward

// w_ih and w_hh are transposed: rows of w_ih are ih_row elements apart, columns ih_column.
template <class T>
void run_forward(const Steps& s, Mode mode, Sizes z, const T* x, const T* w_ih, int64_t ih_row,
                 int64_t ih_column, const T* w_hh, const T* b_ih, const T* b_hh, const T* w_hr, T* h, T* c,
                 T* output, T* gates, T* saved) {
  const RecurrentRows<T>& rows = recurrent_rows<T>();
  const int64_t n = z.hidden;
  std::vector<T> bias;
  if (b_ih) {
    bias.assign(b_ih, b_ih + z.gates);
    if (mode != Mode::Gru)
      for (int64_t i = 0; i < z.gates; ++i) bias[i] += b_hh[i];
  }
  Product<T>(s.rows, z.gates, z.input)
      .a(x, z.input)
      .b(w_ih, ih_row, ih_column)
      .bias(b_ih ? bias.data() : nullptr)
      .into(gates, z.gates);
  over_batch(s, z.gates * z.state, [&](int64_t begin, int64_t end) {
    std::vector<T> scratch;
    if (mode == Mode::Gru) scratch.resize((end - begin) * z.gates);
    if (w_hr) scratch.resize((end - begin) * n);
    for (int64_t i = 0; i < s.size(); ++i) {
      const int64_t t = s.at(i), count = std::min(s.count[t], end) - begin;
      if (count <= 0) continue;
      const int64_t first = s.first[t] + begin * s.apart;
      T* g = gates + first * z.gates;
      Product<T> recurrent(count, z.gates, z.state);
      recurrent.a(h + begin * z.state, z.state).b(w_hh, z.gates);
      if (mode == Mode::Gru)
        recurrent.bias(b_hh).into(scratch.data(), z.gates);
      else
        recurrent.into(g, s.apart * z.gates, true);
      for (int64_t b = 0; b < count; ++b) {
        const int64_t row = first + b * s.apart;
        T *state = h + (begin + b) * z.state, *out = output + row * z.state;
        if (mode == Mode::Lstm) {
          rows.lstm(gates + row * z.gates, c + (begin + b) * n, saved + row * n,
                    w_hr ? scratch.data() + b * n : out, n);
          if (w_hr) continue;
        } else if (mode == Mode::Gru) {
          rows.gru(gates + row * z.gates, scratch.data() + b * z.gates, saved + row * n, state, n);
          std::memcpy(out, state, n * sizeof(T));
          continue;
        } else {
          rows.plain(gates + row * n, out, n, mode == Mode::Relu);
        }
        std::memcpy(state, out, n * sizeof(T));
      }
      if (w_hr) {
        Product<T>(count, z.state, n).a(scratch.data(), n).b(w_hr, 1, n).into(h + begin * z.state, z.state);
        for (int64_t b = 0; b < count; ++b)
          std::memcpy(output + (first + b * s.apart) * z.state, h + (begin + b) * z.state,
                      z.state * sizeof(T));
      }
    }
  });
}

Sizes check(const Tensor& input, const Tensor& hx, const Tensor& cx, const Tensor& w_ih, const Tensor& w_hh,
            const Tensor& b_ih, const Tensor& b_hh, const Tensor& w_hr, Mode mode, const Steps& s) {
  FL_CHECK_KIND(is_floating(input.dtype()), NotImplemented, "[rnn] expected a floating point input, got ",
                name_of(input.dtype()));
  FL_CHECK(w_ih.dim() == 2 && w_hh.dim() == 2, "[rnn] expected weights of 2 dimensions, got ", w_ih.sizes(),
           " and ", w_hh.sizes());
  for (const Tensor* t : {&hx, &cx, &w_ih, &w_hh, &b_ih, &b_hh, &w_hr})
    FL_CHECK(!t->defined() || t->dtype() == input.dtype(),
             "[rnn] expected states and weights of the input's dtype ", name_of(input.dtype()), ", got ",
             name_of(t->defined() ? t->dtype() : input.dtype()));
  for (const Tensor* t : {&hx, &cx, &w_ih, &w_hh, &b_ih, &b_hh, &w_hr})
    FL_CHECK(!t->defined() || t->device() == input.device(),
             "[rnn] expected states and weights on the input's device ", to_string(input.device()), ", got ",
             to_string(t->defined() ? t->device() : input.device()));
  Sizes z;
  z.input = input.size(-1);
  z.gates = w_hh.size(0);
  z.hidden = z.gates / gates_of(mode);
  z.state = w_hr.defined() ? w_hr.size(0) : z.hidden;
  const Dims ih{z.gates, z.input}, hh{z.hidden * gates_of(mode), z.state}, state{s.batch, z.state};
  FL_CHECK(w_ih.sizes() == IntSpan(ih), "[rnn] expected input weights of ", IntSpan(ih), ", got ",
           w_ih.sizes());
  FL_CHECK(w_hh.sizes() == IntSpan(hh), "[rnn] expected hidden weights of ", IntSpan(hh), ", got ",
           w_hh.sizes());
  FL_CHECK(hx.sizes() == IntSpan(state), "[rnn] expected a hidden state of ", IntSpan(state), ", got ",
           hx.sizes());
  FL_CHECK(b_ih.defined() == b_hh.defined(), "[rnn] expected both biases or none, got one");
  if (b_ih.defined())
    FL_CHECK(b_ih.numel() == z.gates && b_hh.numel() == z.gates, "[rnn] expected biases of ", z.gates,
             " elements, got ", b_ih.numel(), " and ", b_hh.numel());
  FL_CHECK(!w_hr.defined() || mode == Mode::Lstm, "[rnn] expected a projection only in an LSTM, got one");
  if (w_hr.defined())
    FL_CHECK(w_hr.dim() == 2 && w_hr.size(1) == z.hidden, "[rnn] expected a projection of ", z.hidden,
             " columns, got ", w_hr.sizes());
  FL_CHECK((mode == Mode::Lstm) == cx.defined(), "[rnn] expected a cell state for an LSTM only");
  if (cx.defined())
    FL_CHECK(cx.dim() == 2 && cx.size(0) == s.batch && cx.size(1) == z.hidden,
             "[rnn] expected a cell state of (", s.batch, ", ", z.hidden, "), got ", cx.sizes());
  return z;
}

// A state that the kernel will update, as a run of the compute type.
Tensor fresh_state(const Tensor& t, DType compute) {
  Tensor out = empty(t.sizes(), {compute, t.device()});
  copy_into(out, t);
  return out;
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> rnn_layer(const Tensor& input, const Tensor& hx,
                                                             const Tensor& cx, const Tensor& w_ih,
                                                             const Tensor& w_hh, const Tensor& b_ih,
                                                             const Tensor& b_hh, const Tensor& w_hr,
                                                             IntSpan batch_sizes, int64_t kind,
                                                             bool reverse) {
  FL_CHECK(input.dim() == 2 || input.dim() == 3, "[rnn] expected an input of 2 or 3 dimensions, got ",
           input.dim());
  const Mode mode = static_cast<Mode>(kind);
  const Steps s = steps_of(input, batch_sizes, reverse);
  const Sizes z = check(input, hx, cx, w_ih, w_hh, b_ih, b_hh, w_hr, mode, s);
  const DType dtype = input.dtype(), compute = compute_of(dtype);
  const Options wide{compute, input.device()}, own{dtype, input.device()};
  // What backward needs is kept in the input's dtype.
  const bool keeps = mode == Mode::Lstm || mode == Mode::Gru;
  if (input.is_meta())
    return {row_tensor(s, z.state, own), empty(hx.sizes(), own),
            empty(cx.defined() ? cx.sizes() : IntSpan({0}), own), row_tensor(s, z.gates, own),
            keeps ? row_tensor(s, z.hidden, own) : empty({0}, own)};
  Tensor gates = row_tensor(s, z.gates, wide);
  Tensor saved = keeps ? row_tensor(s, z.hidden, wide) : empty({0}, wide);
  Tensor output = row_tensor(s, z.state, wide);
  Tensor h = fresh_state(hx, compute), c = cx.defined() ? fresh_state(cx, compute) : empty({0}, wide);
  const bool elsewhere = input.device().type == DeviceType::CUDA;
  // Weights of the input may lie either way; where they lie transposed, as frozen ones do, packing is
  // quicker.
  const bool columns = !elsewhere && w_ih.stride(0) == 1 && w_ih.stride(1) == z.gates;
  const Tensor x = in_row_order(input, s, compute),
               wi = columns ? to_dtype(w_ih, compute) : as_run(w_ih, compute),
               wh = elsewhere ? as_run(w_hh, compute) : transposed(w_hh, compute), bi = as_run(b_ih, compute),
               bh = as_run(b_hh, compute), wr = as_run(w_hr, compute);
  if (elsewhere)
    forward_elsewhere({s, mode, z, x, wi, wh, bi, bh, wr, output, gates, saved, size_of(dtype) == 2}, h, c);
  else if (compute == DType::Double)
    run_forward<double>(s, mode, z, x.data<double>(), wi.data<double>(), wi.stride(1), wi.stride(0),
                        wh.data<double>(), pointer<double>(bi), pointer<double>(bh), pointer<double>(wr),
                        h.data<double>(), c.data<double>(), output.data<double>(), gates.data<double>(),
                        saved.data<double>());
  else
    run_forward<float>(s, mode, z, x.data<float>(), wi.data<float>(), wi.stride(1), wi.stride(0),
                       wh.data<float>(), pointer<float>(bi), pointer<float>(bh), pointer<float>(wr),
                       h.data<float>(), c.data<float>(), output.data<float>(), gates.data<float>(),
                       saved.data<float>());
  return {to_dtype(output, dtype), to_dtype(h, dtype), to_dtype(c, dtype), to_dtype(gates, dtype),
          to_dtype(saved, dtype)};
}

// ---------------------------------------------------------------- derivative

template <class T>
struct Pointers {
  T *input, *h, *c, *w_ih, *w_hh, *b_ih, *b_hh, *w_hr;  // null where none is wanted, but h
};

template <class T>
void sum_rows(const T* x, int64_t rows, int64_t columns, T* out) {
  parallel_for(columns, std::max<int64_t>(64, kGrain / std::max<int64_t>(rows, 1)),
               [&](int64_t begin, int64_t end) {
                 std::memset(out + begin, 0, (end - begin) * sizeof(T));
                 for (int64_t r = 0; r < rows; ++r) {
                   const T* row = x + r * columns;
#pragma GCC ivdep
                   for (int64_t i = begin; i < end; ++i) out[i] += row[i];
                 }
               });
}

template <class T>
void run_backward(const Steps& s, Mode mode, Sizes z, const T* d_output, const T* x, const T* hx, const T* cx,
                  const T* w_ih, const T* w_hh, const T* w_hr, const T* output, const T* gates,
                  const T* saved, Pointers<T> d) {
  const RecurrentRows<T>& rows = recurrent_rows<T>();
  const int64_t n = z.hidden, wide = z.gates;
  const bool gru = mode == Mode::Gru;
  std::vector<T> d_gates(s.rows * wide), d_hidden_gates(gru ? s.rows * wide : 0), before(s.rows * z.state);
  std::vector<T> d_state(w_hr ? s.rows * z.state : 0), unprojected(w_hr ? s.rows * n : 0);
  over_batch(s, 2 * z.gates * z.state, [&](int64_t begin, int64_t end) {
    std::vector<T> scratch(w_hr ? (end - begin) * n : 0), dense((end - begin) * wide);
    for (int64_t i = s.size() - 1; i >= 0; --i) {
      const int64_t t = s.at(i), count = std::min(s.count[t], end) - begin;
      if (count <= 0) continue;
      const int64_t first = s.first[t] + begin * s.apart;
      T* dh = d.h + begin * z.state;
      if (d_output)
        for (int64_t b = 0; b < count; ++b) {
          const T* more = d_output + (first + b * s.apart) * z.state;
          T* to = dh + b * z.state;
#pragma GCC ivdep
          for (int64_t j = 0; j < z.state; ++j) to[j] += more[j];
        }
      const T* d_out = dh;
      if (w_hr) {
        for (int64_t b = 0; b < count; ++b)
          std::memcpy(d_state.data() + (first + b * s.apart) * z.state, dh + b * z.state,
                      z.state * sizeof(T));
        Product<T>(count, n, z.state).a(dh, z.state).b(w_hr, n).into(scratch.data(), n);
        d_out = scratch.data();
      }
      for (int64_t b = 0; b < count; ++b) {
        const int64_t row = first + b * s.apart, earlier = s.before(i, begin + b);
        const T* h_before = earlier < 0 ? hx + (begin + b) * z.state : output + earlier * z.state;
        std::memcpy(before.data() + row * z.state, h_before, z.state * sizeof(T));
        T* dg = d_gates.data() + row * wide;
        const T* g = gates + row * wide;
        if (mode == Mode::Lstm) {
          const T* c_before = earlier < 0 ? cx + (begin + b) * n : saved + earlier * n;
          rows.lstm_gradient(g, saved + row * n, c_before, d_out + b * n, d.c + (begin + b) * n, dg, n);
          if (w_hr) rows.lstm_hidden(g, saved + row * n, unprojected.data() + row * n, n);
        } else if (gru) {
          rows.gru_gradient(g, saved + row * n, h_before, dh + b * n, dg, d_hidden_gates.data() + row * wide,
                            n);
        } else {
          rows.plain_gradient(output + row * n, d_out + b * n, dg, n, mode == Mode::Relu);
        }
      }
      const T* through = (gru ? d_hidden_gates.data() : d_gates.data()) + first * wide;
      Product<T>(count, z.state, wide).a(through, s.apart * wide).b(w_hh, z.state).into(dh, z.state, gru);
    }
  });
  const T* d_recurrent = gru ? d_hidden_gates.data() : d_gates.data();
  if (d.input)
    Product<T>(s.rows, z.input, wide).a(d_gates.data(), wide).b(w_ih, z.input).into(d.input, z.input);
  if (d.w_ih)
    Product<T>(wide, z.input, s.rows).a(d_gates.data(), 1, wide).b(x, z.input).into(d.w_ih, z.input);
  if (d.w_hh)
    Product<T>(wide, z.state, s.rows).a(d_recurrent, 1, wide).b(before.data(), z.state).into(d.w_hh, z.state);
  if (d.w_hr)
    Product<T>(z.state, n, s.rows).a(d_state.data(), 1, z.state).b(unprojected.data(), n).into(d.w_hr, n);
  if (d.b_ih) sum_rows(d_gates.data(), s.rows, wide, d.b_ih);
  if (d.b_hh) {
    if (gru || !d.b_ih)
      sum_rows(d_recurrent, s.rows, wide, d.b_hh);
    else
      std::memcpy(d.b_hh, d.b_ih, wide * sizeof(T));
  }
}

Tensor start_of_gradient(const Tensor& initial, IntSpan sizes, Options wide) {
  Tensor out = empty(sizes, wide);
  if (out.is_meta()) return out;
  if (initial.defined())
    copy_into(out, initial);
  else if (out.device().type == DeviceType::CUDA)
    the_accelerator().fill(out, "\0\0\0\0\0\0\0");
  else
    std::memset(out.raw(), 0, out.numel() * out.itemsize());
  return out;
}

template <class T>
T* pointer_if(const Tensor& t) {
  return t.defined() ? t.data<T>() : nullptr;
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> rnn_layer_backward(
    const Tensor& grad_output, const Tensor& grad_hy, const Tensor& grad_cy, const Tensor& input,
    const Tensor& hx, const Tensor& cx, const Tensor& w_ih, const Tensor& w_hh, const Tensor& w_hr,
    IntSpan batch_sizes, int64_t kind, bool reverse, const Tensor& output, const Tensor& gates,
    const Tensor& saved, const std::vector<bool>& wanted) {
  FL_CHECK(wanted.size() == 8, "[rnn] expected 8 flags for the gradients, got ", wanted.size());
  const Mode mode = static_cast<Mode>(kind);
  const Steps s = steps_of(gates.dim() == 3 ? gates : input, batch_sizes, reverse);
  const Sizes z = check(input, hx, cx, w_ih, w_hh, Tensor(), Tensor(), w_hr, mode, s);
  const DType dtype = input.dtype(), compute = compute_of(dtype);
  const Options wide{compute, input.device()};
  Tensor d_input = wanted[0] ? row_tensor(s, z.input, wide) : Tensor();
  Tensor d_h = start_of_gradient(grad_hy, hx.sizes(), wide);
  Tensor d_c = cx.defined() ? start_of_gradient(grad_cy, cx.sizes(), wide) : Tensor();
  Tensor d_w_ih = wanted[3] ? empty(w_ih.sizes(), wide) : Tensor();
  Tensor d_w_hh = wanted[4] ? empty(w_hh.sizes(), wide) : Tensor();
  Tensor d_b_ih = wanted[5] ? empty({z.gates}, wide) : Tensor(),
         d_b_hh = wanted[6] ? empty({z.gates}, wide) : Tensor();
  Tensor d_w_hr = wanted[7] && w_hr.defined() ? empty(w_hr.sizes(), wide) : Tensor();
  if (!input.is_meta()) {
    const Tensor x = in_row_order(input, s, compute), h0 = as_run(hx, compute), c0 = as_run(cx, compute),
                 wi = as_run(w_ih, compute), wh = as_run(w_hh, compute), wr = as_run(w_hr, compute),
                 out = in_row_order(output, s, compute), g = in_row_order(gates, s, compute),
                 k = saved.numel() ? in_row_order(saved, s, compute) : saved,
                 d_out = grad_output.defined() ? in_row_order(grad_output, s, compute) : grad_output;
    if (input.device().type == DeviceType::CUDA)
      backward_elsewhere(
          {s, mode, z, x, wi, wh, Tensor(), Tensor(), wr, out, g, k, size_of(input.dtype()) == 2}, h0, c0,
          d_out, {d_input, d_h, d_c, d_w_ih, d_w_hh, d_b_ih, d_b_hh, d_w_hr});
    else if (compute == DType::Double)
      run_backward<double>(
          s, mode, z, pointer<double>(d_out), x.data<double>(), h0.data<double>(), pointer<double>(c0),
          wi.data<double>(), wh.data<double>(), pointer<double>(wr), out.data<double>(), g.data<double>(),
          k.data<double>(),
          Pointers<double>{pointer_if<double>(d_input), d_h.data<double>(), pointer_if<double>(d_c),
                           pointer_if<double>(d_w_ih), pointer_if<double>(d_w_hh), pointer_if<double>(d_b_ih),
                           pointer_if<double>(d_b_hh), pointer_if<double>(d_w_hr)});
    else
      run_backward<float>(
          s, mode, z, pointer<float>(d_out), x.data<float>(), h0.data<float>(), pointer<float>(c0),
          wi.data<float>(), wh.data<float>(), pointer<float>(wr), out.data<float>(), g.data<float>(),
          k.data<float>(),
          Pointers<float>{pointer_if<float>(d_input), d_h.data<float>(), pointer_if<float>(d_c),
                          pointer_if<float>(d_w_ih), pointer_if<float>(d_w_hh), pointer_if<float>(d_b_ih),
                          pointer_if<float>(d_b_hh), pointer_if<float>(d_w_hr)});
  }
  const auto finished = [&](const Tensor& t) {
    return t.defined() ? to_dtype(t, dtype) : empty({0}, {dtype, input.device()});
  };
  return {finished(d_input), finished(d_h),    finished(d_c),    finished(d_w_ih),
          finished(d_w_hh),  finished(d_b_ih), finished(d_b_hh), finished(d_w_hr)};
}

}  // namespace

FL_KERNEL("_rnn_layer", rnn_layer, kDevices);
FL_KERNEL("_rnn_layer_backward", rnn_layer_backward, kDevices);

}  // namespace fl
