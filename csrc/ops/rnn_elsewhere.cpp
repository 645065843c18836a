// Recurrent layers on the accelerator: products over all steps at once where they can be, one product and one
// launch for each step else.
#include <algorithm>

#include "core/accelerator.h"
#include "ops/gemm.h"
#include "ops/rnn.h"

namespace fl {
DeviceFunction<void(const rnn::Step&)> device::recurrent_step{"rnn"};
}

namespace fl::rnn {
namespace {

char* row(const Tensor& t, int64_t i) {
  return t.raw() + i * t.size(-1) * t.itemsize();
}
char* row_or_null(const Tensor& t, int64_t i) {
  return t.defined() ? row(t, i) : nullptr;
}

// c = op(a) op(b) (+ c) with rows of m x k, k x n and m x n.
class Product {
 public:
  Product(const Layer& l, int64_t m, int64_t n, int64_t k) {
    g_.dtype = l.gates.dtype();
    g_.device = l.gates.device().index;
    g_.narrow = l.narrow;
    g_.m = m, g_.n = n, g_.k = k;
  }
  Product& a(const void* p, int64_t row, int64_t column = 1) {
    g_.a = p, g_.a_row = row, g_.a_col = column;
    return *this;
  }
  Product& b(const void* p, int64_t row, int64_t column = 1) {
    g_.b = p, g_.b_row = row, g_.b_col = column;
    return *this;
  }
  Product& bias(const Tensor& t) {
    if (t.defined()) g_.bias = t.raw();
    return *this;
  }
  void into(void* p, int64_t row, bool add = false) {
    g_.c = p, g_.c_row = row;
    g_.beta = add ? 1.0 : 0.0;
    if (g_.m > 0 && g_.n > 0) device::gemm(DeviceType::CUDA, g_);
  }

 private:
  GemmArgs g_;
};

Step step_of(const Layer& l, int64_t t) {
  Step s{};
  s.dtype = l.gates.dtype();
  s.device = l.gates.device();
  s.count = l.steps.count[t];
  s.hidden = l.sizes.hidden;
  s.relu = l.mode == Mode::Relu;
  return s;
}

// `count` rows of one tensor to those of another of as many columns.
void copy_rows(const Tensor& to, int64_t to_row, const Tensor& from, int64_t from_row, int64_t count) {
  if (count <= 0) return;
  const int64_t n = to.size(-1);
  copy_into(alias(to, {count, n}, {n, 1}, to.offset() + to_row * n),
            alias(from, {count, n}, {n, 1}, from.offset() + from_row * n));
}

// The state that each row starts from: the rows of the step before, then those of the initial state.
Tensor states_before(const Steps& s, const Tensor& states, const Tensor& initial) {
  const int64_t n = initial.size(-1);
  const Tensor before = empty({s.rows, n}, initial.options());
  if (!s.packed) {
    const int64_t rest = s.rows - s.batch;
    copy_rows(before, s.reverse ? rest : 0, initial, 0, s.batch);
    copy_rows(before, s.reverse ? 0 : s.batch, states, s.reverse ? s.batch : 0, rest);
    return before;
  }
  for (int64_t i = 0; i < s.size(); ++i) {
    const int64_t t = s.at(i), earlier = i ? std::min(s.count[s.at(i - 1)], s.count[t]) : 0;
    if (earlier) copy_rows(before, s.first[t], states, s.first[s.at(i - 1)], earlier);
    copy_rows(before, s.first[t] + earlier, initial, earlier, s.count[t] - earlier);
  }
  return before;
}

}  // namespace

void forward_elsewhere(const Layer& l, const Tensor& h, const Tensor& c) {
  const Steps& s = l.steps;
  const int64_t n = l.sizes.hidden, state = l.sizes.state, wide = l.sizes.gates;
  const bool gru = l.mode == Mode::Gru, projected = l.w_hr.defined();
  Product(l, s.rows, wide, l.sizes.input)
      .a(l.input.raw(), l.sizes.input)
      .b(l.w_ih.raw(), 1, l.sizes.input)
      .bias(l.b_ih)
      .into(l.gates.raw(), wide);
  const Tensor recurrent = gru ? empty({s.batch, wide}, l.gates.options()) : Tensor();
  const Tensor hidden = projected ? empty({s.batch, n}, l.gates.options()) : Tensor();
  for (int64_t i = 0; i < s.size(); ++i) {
    const int64_t t = s.at(i), first = s.first[t], count = s.count[t];
    char* gates = row(l.gates, first);
    Product(l, count, wide, state)
        .a(h.raw(), state)
        .b(l.w_hh.raw(), 1, state)
        .into(gru ? recurrent.raw() : gates, wide, !gru);
    Step step = step_of(l, t);
    step.kind = gru ? Step::Gru : l.mode == Mode::Lstm ? Step::Lstm : Step::Plain;
    step.gates = gates;
    step.recurrent = gru ? recurrent.raw() : nullptr;
    step.bias = l.b_hh.defined() ? l.b_hh.raw() : nullptr;
    step.cell = c.defined() ? c.raw() : nullptr;
    step.kept = l.kept.numel() ? row(l.kept, first) : nullptr;
    step.h = projected ? hidden.raw() : h.raw();
    step.out = projected ? nullptr : row(l.output, first);
    device::recurrent_step(DeviceType::CUDA, step);
    if (projected) {
      Product(l, count, state, n).a(hidden.raw(), n).b(l.w_hr.raw(), 1, n).into(h.raw(), state);
      copy_rows(l.output, first, h, 0, count);
    }
  }
}

namespace {
// The gradient of the hidden weights: that of the gates times the states that steps start from, which are the
// outputs of all steps but the last, and the initial ones, where samples are not packed.
void hidden_weight_gradient(const Layer& l, const Tensor& before, const Tensor& hx, const Tensor& d_recurrent,
                            const Tensor& d_w_hh) {
  const Steps& s = l.steps;
  const int64_t state = l.sizes.state, wide = l.sizes.gates;
  const auto product = [&](int64_t count, int64_t gate_row, const char* states, bool add) {
    Product(l, wide, state, count)
        .a(row(d_recurrent, gate_row), 1, wide)
        .b(states, state)
        .into(d_w_hh.raw(), state, add);
  };
  if (s.packed) return product(s.rows, 0, before.raw(), false);
  const int64_t rest = s.rows - s.batch;
  product(s.batch, s.reverse ? rest : 0, hx.raw(), false);
  if (rest) product(rest, s.reverse ? 0 : s.batch, row(l.output, s.reverse ? s.batch : 0), true);
}

// Gradients of the input and of the weights, by products over all steps at once.
void weight_gradients(const Layer& l, const Tensor& before, const Tensor& hx, const Tensor& d_gates,
                      const Tensor& d_recurrent, const Tensor& d_state, const Tensor& unprojected,
                      const Gradients& d) {
  const Steps& s = l.steps;
  const int64_t n = l.sizes.hidden, state = l.sizes.state, wide = l.sizes.gates;
  const Options options = l.gates.options();
  const int64_t in = l.sizes.input;
  if (d.input.defined())
    Product(l, s.rows, in, wide).a(d_gates.raw(), wide).b(l.w_ih.raw(), in).into(d.input.raw(), in);
  if (d.w_ih.defined())
    Product(l, wide, in, s.rows).a(d_gates.raw(), 1, wide).b(l.input.raw(), in).into(d.w_ih.raw(), in);
  if (d.w_hh.defined()) hidden_weight_gradient(l, before, hx, d_recurrent, d.w_hh);
  if (d.w_hr.defined())
    Product(l, state, n, s.rows).a(d_state.raw(), 1, state).b(unprojected.raw(), n).into(d.w_hr.raw(), n);
  if (!d.b_ih.defined() && !d.b_hh.defined()) return;
  const Tensor ones = empty({1, s.rows}, options);
  const double one = 1;
  const float one_float = 1;
  the_accelerator().fill(ones, options.dtype == DType::Double ? static_cast<const void*>(&one) : &one_float);
  for (const auto& [to, from] : {std::pair(d.b_ih, d_gates), std::pair(d.b_hh, d_recurrent)})
    if (to.defined())
      Product(l, 1, wide, s.rows).a(ones.raw(), s.rows).b(from.raw(), wide).into(to.raw(), wide);
}
}  // namespace

void backward_elsewhere(const Layer& l, const Tensor& hx, const Tensor& cx, const Tensor& d_output,
                        const Gradients& d) {
  const Steps& s = l.steps;
  const int64_t n = l.sizes.hidden, state = l.sizes.state, wide = l.sizes.gates;
  const bool gru = l.mode == Mode::Gru, lstm = l.mode == Mode::Lstm, projected = l.w_hr.defined();
  const Options options = l.gates.options();
  // The states that steps start from; without packing those of the step before are read where they are.
  const Tensor before = s.packed ? states_before(s, l.output, hx) : Tensor(),
               cells = s.packed && lstm ? states_before(s, l.kept, cx) : Tensor();
  const auto before_step = [&](int64_t i, const Tensor& packed, const Tensor& states, const Tensor& initial) {
    return s.packed ? row(packed, s.first[s.at(i)]) : i ? row(states, s.first[s.at(i - 1)]) : initial.raw();
  };
  // Gates of 16 bits were converted for this call, so that their gradients may take their place.
  const Tensor d_gates = l.narrow && !projected ? l.gates : empty({s.rows, wide}, options),
               d_recurrent = gru ? empty({s.rows, wide}, options) : d_gates;
  const Tensor d_state = projected ? empty({s.rows, state}, options) : Tensor(),
               unprojected = projected ? empty({s.rows, n}, options) : Tensor(),
               d_hidden = projected ? empty({s.batch, n}, options) : Tensor();
  for (int64_t i = s.size() - 1; i >= 0; --i) {
    const int64_t t = s.at(i), first = s.first[t], count = s.count[t];
    Step step = step_of(l, t);
    step.more = row_or_null(d_output, first);
    step.d_out = step.d_h = d.h.raw();
    if (projected) {
      // The projection's gradient wants the sum of both parts.
      if (d_output.defined()) {
        Step sum = step;
        sum.kind = Step::Add;
        sum.hidden = state;
        device::recurrent_step(DeviceType::CUDA, sum);
      }
      copy_rows(d_state, first, d.h, 0, count);
      Product(l, count, n, state).a(d.h.raw(), state).b(l.w_hr.raw(), n).into(d_hidden.raw(), n);
      step.more = nullptr;
      step.d_out = d_hidden.raw();
    }
    step.gates = row(l.gates, first);
    step.d_gates = row(d_gates, first);
    if (lstm) {
      step.kind = Step::LstmGradient;
      step.kept = row(l.kept, first);
      step.before = before_step(i, cells, l.kept, cx);
      step.d_cell = d.c.raw();
    } else if (gru) {
      step.kind = Step::GruGradient;
      step.kept = row(l.kept, first);
      step.before = before_step(i, before, l.output, hx);
      step.d_recurrent = row(d_recurrent, first);
    } else {
      step.kind = Step::PlainGradient;
      step.out = row(l.output, first);
    }
    device::recurrent_step(DeviceType::CUDA, step);
    Product(l, count, state, wide)
        .a(row(d_recurrent, first), wide)
        .b(l.w_hh.raw(), state)
        .into(d.h.raw(), state, gru);
  }
  if (projected) {
    Step all = step_of(l, 0);
    all.kind = Step::LstmHidden;
    all.count = s.rows;
    all.gates = l.gates.raw();
    all.kept = l.kept.raw();
    all.h = unprojected.raw();
    device::recurrent_step(DeviceType::CUDA, all);
  }
  weight_gradients(l, before, hx, d_gates, d_recurrent, d_state, unprojected, d);
}

}  // namespace fl::rnn
