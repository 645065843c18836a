// Conditions that some pointwise records put on their arguments, by the name the record gives.
#include <cstring>

#include "core/scalar_range.h"
#include "ops/pointwise.h"

namespace fl {

namespace {

DType dtype_of(const Value& v) {
  return v.is_tensor() ? v.tensor_impl()->dtype : v.to_scalar().dtype();
}

void alpha(const PointwiseDef& def, const Value* const*, const Scalar* params, DType common) {
  const Scalar& a = params[0];
  FL_CHECK(a.kind != Scalar::Kind::Bool || common == DType::Bool, "[", def.name,
           "] expected a bool alpha only for a bool result, got ", name_of(common));
  FL_CHECK(a.is_integral() || is_floating(common) || is_complex(common), "[", def.name,
           "] expected an integer alpha for a result of ", name_of(common),
           ", got a float: For integral input tensors, argument alpha must not be a floating point number.");
  FL_CHECK(!a.is_complex() || is_complex(common), "[", def.name, "] expected a real alpha for a ",
           name_of(common), " result, got a complex one");
  check_fits(def.name, a, common);
}

// Numbers beside tensors have to fit the dtype of the result.
void fitting_numbers(const PointwiseDef& def, const Value* const* operand, const Scalar*, DType common) {
  for (int i = 0; i < def.operands; ++i)
    if (!operand[i]->is_tensor()) check_fits(def.name, operand[i]->to_scalar(), common);
}

void subtraction(const PointwiseDef& def, const Value* const* operand, const Scalar* params, DType common) {
  for (int i = 0; i < def.operands; ++i)
    FL_CHECK(!operand[i]->is_tensor() || dtype_of(*operand[i]) != DType::Bool, "[", def.name,
             "] expected numeric tensors, got a bool tensor; use ~ or logical_not() to invert a mask");
  alpha(def, operand, params, common);
}

void no_bool(const PointwiseDef& def, const Value* const* operand, const Scalar*, DType) {
  FL_CHECK(dtype_of(*operand[0]) != DType::Bool, "[", def.name,
           "] expected a numeric tensor, got a bool tensor; use ~ or logical_not()");
}

void mask_condition(const PointwiseDef& def, const Value* const* operand, const Scalar*, DType) {
  const DType condition = dtype_of(*operand[0]);
  FL_CHECK(condition == DType::Bool || condition == DType::UInt8, "[", def.name,
           "] expected a bool condition, got ", name_of(condition),
           "; compare it, or convert it with .bool()");
}

void no_integer_division(const PointwiseDef& def, const Value* const* operand, const Scalar*, DType) {
  FL_CHECK(!is_integral(dtype_of(*operand[1]), true) || !is_integral(dtype_of(*operand[2]), true), "[",
           def.name,
           "] expected a floating point or complex quotient, got two integer tensors: "
           "Integer division with addcdiv is no longer supported; divide with rounding_mode first");
}

void scalar_value(const PointwiseDef& def, const Value* const* operand, const Scalar*, DType common) {
  const Value& value = *operand[2];
  FL_CHECK(!value.is_tensor() || value.tensor_impl()->sizes.empty(), "[", def.name,
           "] expected a number or a 0-d tensor as value, got shape ", value.tensor().sizes());
  FL_CHECK(!is_complex(dtype_of(value)) || is_complex(common) || common == DType::Bool, "[", def.name,
           "] expected a real value for a ", name_of(common), " tensor, got a complex one");
  FL_CHECK(dtype_of(*operand[1]) == DType::Bool, "[", def.name, "] expected a bool mask, got ",
           name_of(dtype_of(*operand[1])), ": ", def.name,
           "_ only supports boolean masks; convert it with .bool()");
  if (!value.is_tensor()) check_fits(def.name, value.to_scalar(), common);
}

void same_dtype(const PointwiseDef& def, const Value* const* operand, const Scalar*, DType) {
  for (int i = 1; i < def.operands; ++i)
    FL_CHECK(!operand[i]->is_tensor() || dtype_of(*operand[i]) == dtype_of(*operand[0]), "[", def.name,
             "] expected tensors of one dtype, got ", name_of(dtype_of(*operand[0])), " and ",
             name_of(dtype_of(*operand[i])));
}

void not_negative(const PointwiseDef& def, const Value* const*, const Scalar* params, DType) {
  FL_CHECK(params[0].to<double>() >= 0, "[", def.name, "] expected a parameter that is not negative, got ",
           params[0].to<double>());
}

void integer_power(const PointwiseDef& def, const Value* const* operand, const Scalar*, DType common) {
  const Value& exponent = *operand[1];
  if (is_integral(common, true) && !exponent.is_tensor())
    FL_CHECK(exponent.to_scalar().to<int64_t>() >= 0, "[", def.name,
             "] expected an exponent that is not negative for integers, got ",
             exponent.to_scalar().to<int64_t>());
}

void unsigned_bounds(const PointwiseDef& def, const Value* const* operand, const Scalar* params,
                     DType common) {
  FL_CHECK(common != DType::UInt8 || (params[0].to<double>() >= 0 && params[1].to<double>() >= 0), "[",
           def.name, "] expected bounds that are not negative for an unsigned tensor, got ",
           params[0].to<double>());
  FL_CHECK_KIND(dtype_of(*operand[0]) != DType::Bool, NotImplemented, "[", def.name,
                "] expected a numeric tensor, got a bool tensor");
}

}  // namespace

PointwiseCheck find_check(const char* name) {
  static const struct {
    const char* name;
    PointwiseCheck check;
  } table[] = {{"alpha", alpha},
               {"subtraction", subtraction},
               {"mask_condition", mask_condition},
               {"no_bool", no_bool},
               {"fitting_numbers", fitting_numbers},
               {"no_integer_division", no_integer_division},
               {"scalar_value", scalar_value},
               {"same_dtype", same_dtype},
               {"not_negative", not_negative},
               {"integer_power", integer_power},
               {"unsigned_bounds", unsigned_bounds}};
  for (const auto& row : table)
    if (!std::strcmp(row.name, name)) return row.check;
  fail("[record] expected the name of a check in csrc/ops/pointwise_checks.cpp, got ", name);
}

}  // namespace fl
