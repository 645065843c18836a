// Turns the generated table into operators, with the derived in-place and out= forms of each.
#include "dispatch/builtin.h"

#include <cstring>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include "dispatch/kernel.h"

#include "ops/outputs.h"
#include "ops/pointwise.h"

namespace fl {

void attach_pending_kernels();
void attach_pending_kernels(Operator& op);
extern std::atomic<Operator* (*)(const std::string&)> define_on_demand;

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
             "] expected an out whose elements are distinct in memory, got an expanded tensor: unsupported "
             "operation: more than one element of the "
             "written-to tensor refers to a single memory location");
    for (size_t k = 0; k < first_out; ++k)
      FL_CHECK(!args[k].is_tensor() || !overlaps_partially(out, args[k].tensor()), "[",
               op.functional->schema.name,
               "] expected an out that does not partly overlap an argument, got views of one memory: "
               "unsupported operation: some elements of the input tensor and the written-to tensor refer to "
               "a single memory location");
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

// The name of a schema's operator: all before its arguments.
std::string_view name_in(const char* schema) {
  return {schema, std::strcspn(schema, "(")};
}

// Which operators are defined, row by row. Definitions may lead to others: looking up an operator defines it.
struct Definitions {
  std::recursive_mutex mutex;
  std::vector<Operator*> rows = std::vector<Operator*>(static_cast<size_t>(builtin_operator_count));
  std::unordered_map<std::string_view, int> row_of;  // of an operator's name, in all its forms

  Definitions() {
    for (int i = 0; i < builtin_operator_count; ++i)
      for (const char* schema :
           {builtin_operators[i].schema, builtin_operators[i].inplace, builtin_operators[i].out})
        if (schema) row_of.emplace(name_in(schema), i);
  }

  Operator* define(int i) {
    const std::lock_guard<std::recursive_mutex> lock(mutex);
    Operator*& op = rows[static_cast<size_t>(i)];
    if (op) return op;
    const BuiltinOperator& row = builtin_operators[i];
    op = OperatorTable::get().define(row.schema, row.flags);
    op->record = &row;
    op->node = row.node;
    if (row.pointwise) {
      op->set_kernel(Key::CPU, Kernel{pointwise_kernel, row.pointwise});
      op->set_kernel(Key::Meta, Kernel{pointwise_kernel, row.pointwise});
    }
    derive(op, row, row.inplace, kInplace);
    derive(op, row, row.out, kOut);
    return op;
  }
};

Definitions& definitions() {
  static auto* const all = new Definitions;
  return *all;
}

// The operator of a name, with the kernels that static initialisers left for it.
Operator* define_by_name(const std::string& name) {
  Definitions& all = definitions();
  const auto entry = all.row_of.find(name);
  if (entry == all.row_of.end()) return nullptr;
  const std::lock_guard<std::recursive_mutex> lock(all.mutex);
  if (all.rows[static_cast<size_t>(entry->second)] == nullptr) {
    Operator* op = all.define(entry->second);
    for (Operator* form : {op, op->inplace, op->out})
      if (form) attach_pending_kernels(*form);
  }
  Operator* op = all.rows[static_cast<size_t>(entry->second)];
  for (Operator* form : {op, op->inplace, op->out})
    if (form && form->schema.full_name() == name) return form;
  return nullptr;
}

// Until all operators are defined, each is when it is first looked for: a program that runs one model needs a
// few.
const bool on_demand = (define_on_demand.store(define_by_name, std::memory_order_release), true);

}  // namespace

Operator& builtin_operator(int row) {
  return *definitions().rows[static_cast<size_t>(row)];
}

void define_builtin_operators() {
  static const bool once = [] {
    Definitions& all = definitions();
    const std::lock_guard<std::recursive_mutex> lock(all.mutex);
    for (int i = 0; i < builtin_operator_count; ++i) all.define(i);
    attach_pending_kernels();
    define_on_demand.store(nullptr, std::memory_order_release);
    return true;
  }();
  (void)once;
}

}  // namespace fl
