// out= forms of composite ops that refuse an out of another dtype instead of converting to it.
#include "cpu/pointwise.h"
#include "dispatch/kernel.h"

namespace fl {
namespace {

void check_apart(const char* op, const Tensor& out, const Tensor& argument) {
  FL_CHECK(!overlaps_partially(out, argument), "[", op,
           "] expected an out that does not partly overlap an argument, got views of one memory");
}

void write_exactly(const char* op, const Tensor& out, const Tensor& value) {
  FL_CHECK(out.device() == value.device(), "[", op, "] expected out on ", to_string(value.device()), ", got ",
           to_string(out.device()));
  FL_CHECK(!has_internal_overlap(out), "[", op,
           "] expected an out whose elements are distinct in memory, got an expanded tensor");
  FL_CHECK(out.dtype() == value.dtype(), "[", op, "] expected an out of dtype ", name_of(value.dtype()),
           ", got ", name_of(out.dtype()));
  prepare_out(op, out, value.sizes(), value.dtype(), true);
  out.bump_version();
  copy_into(out, value);
}

Tensor complex_out(const Tensor& real, const Tensor& imag, const Tensor& out) {
  static const Operator& complex = OperatorTable::get().at("complex");
  check_apart("complex", out, real);
  check_apart("complex", out, imag);
  Value args[2] = {Value(real), Value(imag)};
  Value made[1];
  complex.call(args, made);
  write_exactly("complex", out, made[0].tensor());
  return out;
}

std::tuple<Tensor, Tensor> aminmax_out(const Tensor& self, std::optional<int64_t> dim, bool keepdim,
                                       const Tensor& min, const Tensor& max) {
  static const Operator& aminmax = OperatorTable::get().at("aminmax");
  check_apart("aminmax", min, self);
  check_apart("aminmax", max, self);
  Value args[3] = {Value(self), dim ? Value(*dim) : Value(), Value(keepdim)};
  Value found[2];
  aminmax.call(args, found);
  write_exactly("aminmax", min, found[0].tensor());
  write_exactly("aminmax", max, found[1].tensor());
  return {min, max};
}

FL_KERNEL("complex.out", complex_out);
FL_KERNEL("aminmax.out", aminmax_out);

}  // namespace
}  // namespace fl
