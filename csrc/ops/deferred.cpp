// Tensors that are conjugated or negated when they are read: views with the keys Conjugate and Negative.
// Calls on them are rewritten, before autograd sees them, as calls on tensors whose memory holds the
// elements; views keep the keys.
#include "ops/deferred.h"

#include "ops/substitution.h"

namespace fl {
namespace {

Tensor call(const char* name, const Tensor& t) {
  return call_tensor(OperatorTable::get().at(name), t);
}

bool is_deferred(const Tensor& t) {
  return !(t->keys & kDeferred).empty();
}

// The view of the same memory without the keys.
Tensor as_stored(const Tensor& t) {
  Tensor out = t;
  if (t->keys.has(Key::Conjugate)) out = call("_conj", out);
  if (t->keys.has(Key::Negative)) out = call("_neg_view", out);
  return out;
}

// What is to lie in the memory of a tensor with these keys, so that `value` is read.
Tensor to_store(Tensor value, KeySet keys) {
  if (keys.has(Key::Conjugate) && is_complex(value.dtype())) value = call("conj_physical", value);
  return keys.has(Key::Negative) ? call("neg", value) : value;
}

void write(const Tensor& to, const Tensor& from) {
  static const Operator& copy = OperatorTable::get().at("copy_");
  static const Operator& convert = OperatorTable::get().at("to.dtype");
  const Tensor value = from.dtype() == to.dtype()
                           ? from
                           : call_tensor(convert, from, Value(to.dtype()), false, false, Value());
  call_tensor(copy, as_stored(to), to_store(value, to->keys), false);
}

constexpr Substitute kElements{is_deferred, elements_of, write};

void rewrite(const Operator& op, void*, KeySet keys, Value* args, Value* results) {
  if (op.flags & (kView | kGeometry)) return op.call_with(keys - kDeferred, args, results);
  SubstitutedCall call(op, args, kElements);
  op.call_with(keys - kDeferred, call.args(), results);
  call.finish(results, op.n_results());
}

// copy_ is what the others are written back with.
void copy_deferred(const Operator& op, void*, KeySet, Value* args, Value* results) {
  const Tensor to = args[0].tensor(), from = elements_of(args[1].tensor());
  if (is_deferred(to))
    write(to, from);
  else
    call_tensor(op, to, from, args[2]);
  results[0] = Value(to);
}

detail::Register register_copy{"copy_", kDeferred, Kernel{copy_deferred, nullptr}};

struct Install {
  Install() {
    OperatorTable::get().set_fallback(Key::Conjugate, Kernel{rewrite, nullptr});
    OperatorTable::get().set_fallback(Key::Negative, Kernel{rewrite, nullptr});
  }
} install;

}  // namespace

bool& defers_in_records() {
  static thread_local bool defers = false;
  return defers;
}

Tensor elements_of(const Tensor& t) {
  return is_deferred(t) ? to_store(as_stored(t), t->keys) : t;
}

}  // namespace fl
