// A call with other tensors in the place of some of its arguments, for tensors that kernels do not know.
#pragma once

#include <vector>

#include "dispatch/kernel.h"

namespace fl {

// What stands for a tensor while a call runs, and how that is written back.
struct Substitute {
  bool (*concerns)(const Tensor& t);
  Tensor (*made_of)(const Tensor& t);
  void (*write)(const Tensor& to, const Tensor& substitute);
};

class SubstitutedCall {
 public:
  SubstitutedCall(const Operator& op, const Value* args, const Substitute& how)
      : args_(args, args + op.schema.args.size()), how_(how) {
    for (size_t i = 0; i < args_.size(); ++i) {
      const bool written = op.schema.args[i].mutated;
      if (args_[i].is_tensor()) {
        if (how.concerns(args_[i].tensor())) args_[i] = Value(replace(args_[i].tensor(), written));
      } else if (args_[i].is_tensor_list()) {
        std::vector<Tensor> list(args_[i].tensors(), args_[i].tensors() + args_[i].length());
        for (Tensor& t : list)
          if (t.defined() && how.concerns(t)) t = replace(t, written);
        args_[i] = Value(list);
      }
    }
  }

  Value* args() { return args_.data(); }

  // Writes back what was written, and gives results that are arguments as those of the call.
  void finish(Value* results, int n) {
    static const Operator& resize = OperatorTable::get().at("resize_");
    for (const Pair& pair : written_) {
      if (pair.itself.sizes() != pair.substitute.sizes())
        call_tensor(resize, pair.itself, pair.substitute.sizes().vec(), Value());
      how_.write(pair.itself, pair.substitute);
      for (int i = 0; i < n; ++i)
        if (results[i].is_tensor() && results[i].tensor().same(pair.substitute))
          results[i] = Value(pair.itself);
    }
  }

 private:
  struct Pair {
    Tensor itself, substitute;
  };

  Tensor replace(const Tensor& t, bool written) {
    Tensor substitute = how_.made_of(t);
    if (written) written_.push_back({t, substitute});
    return substitute;
  }

  std::vector<Value> args_;
  std::vector<Pair> written_;
  const Substitute& how_;
};

}  // namespace fl
