// Turns the generated table into operators, with the derived in-place and out= forms of each.
#include "dispatch/builtin.h"

#include "dispatch/kernel.h"

#include "ops/outputs.h"
#include "ops/pointwise.h"

namespace fl {

void attach_pending_kernels();

namespace {
std::vector<Operator*>& rows() {
  static auto* list = new std::vector<Operator*>;
  return *list;
}
}  // namespace

Operator& builtin_operator(int row) {
  return *rows()[row];
}

namespace {

// Whether what runs now is recorded for backward.
bool recorded(const Operator& op, const Value* args) {
  const ThreadState& state = thread_state();
  if (!state.grad_mode || state.excluded.has(Key::Autograd)) return false;
  for (size_t i = 0; i < op.schema.args.size(); ++i)
    if (args[i].is_tensor() && args[i].tensor().defined() && args[i].tensor().requires_grad()) return true;
  return false;
}

// In-place form of any op: compute, then copy into the first argument. Where the computation is recorded, it
// is that of a copy: it may have kept its operand, which is overwritten next.
void run_inplace(const Operator& op, void*, KeySet, Value* args, Value* results) {
  static const Operator& copy = OperatorTable::get().at("copy_");
  const Tensor self = args[0].tensor();
  Value fresh[1];
  if (recorded(op, args)) {
    static const Operator& clone = OperatorTable::get().at("clone");
    const Value self_value = args[0];
    args[0] = Value(call_tensor(clone, self, Value()));
    op.functional->call(args, fresh);
    args[0] = self_value;
  } else {
    op.functional->call(args, fresh);
  }
  FL_CHECK(fresh[0].tensor_impl()->sizes == self->sizes, "[", op.schema.name,
           "] expected a result of the shape ", self.sizes(), " of the tensor it is written to, got ",
           fresh[0].tensor().sizes());
  FL_CHECK(can_cast(fresh[0].tensor_impl()->dtype, self.dtype()), "[", op.schema.name,
           "] expected a result that ", name_of(self.dtype()), " can hold, got ",
           name_of(fresh[0].tensor_impl()->dtype));
  Value copy_args[3] = {args[0], fresh[0], Value(false)};
  copy.call(copy_args, results);
}

// out= form of any op: compute, then copy into the given tensors.
void run_out(const Operator& op, void*, KeySet, Value* args, Value* results) {
  static const Operator& copy = OperatorTable::get().at("copy_");
  const int n = op.n_results();
  const size_t first_out = op.schema.args.size() - n;
  std::vector<Value> fresh(n);
  for (int i = 0; i < n; ++i) {
    const Tensor out = args[first_out + i].tensor();
    FL_CHECK(!has_internal_overlap(out), "[", op.functional->schema.name,
             "] expected an out whose elements are distinct in memory, got an expanded tensor");
    for (size_t k = 0; k < first_out; ++k)
      FL_CHECK(!args[k].is_tensor() || !overlaps_partially(out, args[k].tensor()), "[",
               op.functional->schema.name,
               "] expected an out that does not partly overlap an argument, got views of one memory");
  }
  // Where a dtype can be asked for, out asks for its own.
  for (size_t k = 0; k < first_out; ++k)
    if (args[k].is_none() && op.schema.args[k].name == "dtype")
      args[k] = Value(args[first_out].tensor().dtype());
  op.functional->call(args, fresh.data());
  for (int i = 0; i < n; ++i) {
    const Tensor out = args[first_out + i].tensor();
    const Tensor value = fresh[i].tensor();
    FL_CHECK(out.device() == value.device(), "[", op.functional->schema.name, "] expected out on ",
             to_string(value.device()), ", got ", to_string(out.device()));
    FL_CHECK(!out.requires_grad() && !(value.requires_grad() && thread_state().grad_mode), "[",
             op.functional->schema.name,
             "] expected out= and its arguments not to require grad, got one that does; out= functions are "
             "not differentiable");
    const bool keeps_shape = op.flags & kSequence && out.numel() == value.numel();
    prepare_out(op.functional->schema.name.c_str(), out, keeps_shape ? out.sizes() : value.sizes(),
                value.dtype(), true);
    if (keeps_shape)
      fresh[i] = Value(alias(value, out.sizes(), contiguous_strides(out.sizes()), value.offset()));
    Value copy_args[3] = {Value(out), fresh[i], Value(false)};
    Value ignored[1];
    copy.call(copy_args, ignored);
    results[i] = Value(out);
  }
}

void derive(Operator* base, const BuiltinOperator& row, const char* schema, uint32_t flag) {
  if (schema == nullptr) return;
  Operator* op = OperatorTable::get().define(schema, flag | (row.flags & ~uint32_t(kView)));
  op->functional = base;
  op->record = &row;
  (flag == kInplace ? base->inplace : base->out) = op;
  op->set_kernel(Key::Composite, Kernel{flag == kInplace ? run_inplace : run_out, nullptr});
  if (row.pointwise) {
    op->set_kernel(Key::CPU, Kernel{pointwise_kernel, row.pointwise});
    op->set_kernel(Key::Meta, Kernel{pointwise_kernel, row.pointwise});
  }
}

}  // namespace

void define_builtin_operators() {
  static const bool once = [] {
    for (int i = 0; i < builtin_operator_count; ++i) {
      const BuiltinOperator& row = builtin_operators[i];
      Operator* op = OperatorTable::get().define(row.schema, row.flags);
      op->record = &row;
      op->node = row.node;
      rows().push_back(op);
      if (row.pointwise) {
        op->set_kernel(Key::CPU, Kernel{pointwise_kernel, row.pointwise});
        op->set_kernel(Key::Meta, Kernel{pointwise_kernel, row.pointwise});
      }
      derive(op, row, row.inplace, kInplace);
      derive(op, row, row.out, kOut);
    }
    attach_pending_kernels();
    return true;
  }();
  (void)once;
}

}  // namespace fl
