#include "compiled/program.h"

#include <optional>

#include "compiled/kept_value.h"
#include "core/accelerator.h"
#include "core/arena.h"
#include "core/parallel.h"
#include "core/random.h"

namespace fl::compiled {
namespace {

// The same value without a copy of the list it refers to.
Value borrowed(const Value& v) {
  switch (v.tag()) {
    case Value::Tag::Tensor:
      return Value::borrow(v.tensor_impl());
    case Value::Tag::IntList:
      return Value::borrow(v.ints());
    case Value::Tag::FloatList:
      return Value::borrow(v.floats(), v.length());
    case Value::Tag::BoolList:
      return Value::borrow(v.bools(), v.length());
    case Value::Tag::TensorList:
      return Value::borrow(v.tensors(), v.length());
    case Value::Tag::String:
      return Value::borrow(v.string());
    case Value::Tag::Opaque:
      return Value::borrow(v.opaque());
    default:
      return v;
  }
}

// Elements from the first to the last.
int64_t extent(const Dims& sizes, const Dims& strides) {
  int64_t last = 0;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 0) return 0;
    last += (sizes[d] - 1) * strides[d];
  }
  return last + 1;
}

// The scalar that an input holds: a double, or an integer.
Scalar scalar_at(const Tensor& t) {
  if (t.dtype() == DType::Int64) return Scalar(*t.data<int64_t>());
  return Scalar(*t.data<double>());
}

// Nanoseconds of so many simple operations on one thread.
double time_of(int64_t work) {
  return static_cast<double>(work) * (thread_model::kGrainTime / kGrain);
}

class Runner {
 public:
  // Inputs are used where they are; steps fill the other slots.
  Runner(const Tensor* tensors, const Program& program, const Tensor* states, Tensor* owned)
      : tensors_(tensors),
        owned_(owned),
        inputs_(program.inputs),
        made_(program.slots - program.inputs),
        device_(program.device),
        block_offsets_(&program.block_offsets),
        states_(states) {
    if (program.arena) {
      arena_.emplace(program.arena);
      placed_.reserve(program.steps.size());
    }
    if (device_.type == DeviceType::CUDA) stream_ = the_accelerator().stream(device_);
  }

  // Whoever has hold of a tensor in the arena when a run ends, which no operator of ours does, keeps it.
  ~Runner() {
    made_.clear();
    for (const Ref<Storage>& storage : placed_)
      if (storage->use_count() > 1) move_out(*storage);
  }
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  const Tensor& at(int slot) const { return slot < inputs_ ? tensors_[slot] : made_[slot - inputs_]; }
  Tensor& make(int slot) { return made_[slot - inputs_]; }

  void operator()(const AllocateStep& s) {
    make(s.slot) = empty_strided(s.sizes, s.strides, {s.dtype, device_});
  }
  void operator()(const ViewStep& s) {
    const Tensor& base = at(s.base);
    const int64_t skipped = base.offset() * base.itemsize(), itemsize = size_of(s.dtype);
    FL_CHECK(skipped % itemsize == 0, "[view] expected memory that begins at a multiple of ", itemsize,
             " bytes to view as ", name_of(s.dtype), ", got one that begins at byte ", skipped);
    Tensor view = alias(base, s.sizes, s.strides, skipped / itemsize + s.offset);
    view->dtype = s.dtype;
    make(s.slot) = view;
  }
  void operator()(const ArenaTensorStep& s) {
    const size_t bytes = static_cast<size_t>(extent(s.sizes, s.strides)) * size_of(s.dtype);
    Offer here{address(s.location), bytes, {}};
    const OfferScope scope(&here, 1);
    make(s.slot) = empty_strided(s.sizes, s.strides, {s.dtype, device_});
    placed_.push_back(std::move(here.taken));
  }
  void operator()(const UnshareStep& s) {
    Tensor& tensor = s.slot < inputs_ ? own_input(s.slot) : make(s.slot);
    const int64_t known = arena_ && tensor->storage->foreign_delete ? 2 : 1;  // one is in `placed_`
    if (tensor->use_count() == 1 && tensor->storage->use_count() == known) return;
    Tensor copy = empty_strided(tensor.sizes(), tensor.strides(), tensor.options());
    copy_into(copy, tensor);
    tensor = copy;
  }
  void operator()(const ReleaseStep& s) {
    for (int slot : s.slots) {
      if (slot >= inputs_)
        make(slot) = Tensor();
      else if (owned_)
        owned_[slot] = Tensor();
    }
  }

  void operator()(const LoopStep& s) { run(s, thread_model::pieces_for(time_of(s.work))); }

  void operator()(const ConcurrentLoopsStep& s) {
    int64_t work = 0;
    for (const LoopStep& loop : s.loops) work += std::min(loop.work, kMostWork);
    const int pieces = thread_model::pieces_for(time_of(work));
    if (pieces <= 1) {
      for (const LoopStep& loop : s.loops) (*this)(loop);
      return;
    }
    // A thread runs those that begin in its part of the work.
    parallel_pieces(pieces, time_of(work), [&](int64_t thread, int64_t team) {
      const int64_t begin = work * thread / team, end = work * (thread + 1) / team;
      int64_t before = 0;  // work of the loops before
      for (const LoopStep& loop : s.loops) {
        if (before >= begin && (before < end || thread + 1 == team)) run(loop, 1);
        before += std::min(loop.work, kMostWork);
      }
    });
  }

  void operator()(const KernelStep& s) {
    // Pointers, numbers (whose low half is what a parameter of 32 bits takes), two scratch areas.
    int64_t values[kMaxPointers + kMaxNumbers + 2];
    void* params[kMaxPointers + kMaxNumbers + 2];
    size_t n = 0;
    if (s.outside) {
      for (const Location& p : s.pointers) params[n++] = address(p);
      return s.outside(params, n);
    }
    for (const Location& p : s.pointers) values[n++] = reinterpret_cast<int64_t>(address(p));
    for (int64_t number : s.numbers) values[n++] = number;
    values[n++] = 0;
    values[n++] = 0;
    for (size_t i = 0; i < n; ++i) params[i] = &values[i];
    const unsigned block[3] = {s.threads, 1, 1};
    the_accelerator().launch(s.function, s.grid, block, s.shared, stream_, params, values, n * sizeof *values,
                             s.waits);
  }

  void operator()(const RandomStateStep& s) {
    if (states_) {
      make(s.slot) = alias(*states_, {2}, {1}, 2 * taken_++);
      return;
    }
    const Generator::State state = default_generator(device_.type).take();
    Tensor words = empty({2}, {DType::Int64, device_});
    if (device_.type == DeviceType::CUDA) {
      the_accelerator().random_state(words, state.seed, state.offset);
    } else {
      words.data<int64_t>()[0] = static_cast<int64_t>(state.seed);
      words.data<int64_t>()[1] = static_cast<int64_t>(state.offset);
    }
    make(s.slot) = words;
  }

  void operator()(const CallStep& s) {
    constexpr int kMost = 32;
    Value arguments[kMost], results[kMost];
    std::vector<std::vector<Tensor>> lists(s.lists.size());
    for (size_t i = 0; i < s.arguments.size(); ++i) arguments[i] = borrowed(s.arguments[i]);
    for (auto [argument, slot] : s.tensors) arguments[argument] = Value::borrow(at(slot).impl());
    for (size_t i = 0; i < s.lists.size(); ++i) {
      for (int slot : s.lists[i].slots) lists[i].push_back(slot < 0 ? Tensor() : at(slot));
      arguments[s.lists[i].argument] = Value::borrow(lists[i].data(), lists[i].size());
    }
    std::vector<Tensor> operands;  // scalars that stand for tensors, as in 2.0 * x
    operands.reserve(s.scalars.size());
    for (auto [argument, slot] : s.scalars) {
      const Scalar scalar = scalar_at(at(slot));
      if (s.arguments[argument].is_tensor()) {
        operands.push_back(wrapped_number(scalar));
        arguments[argument] = Value::borrow(operands.back().impl());
      } else {
        arguments[argument] = Value(scalar);
      }
    }
    Offer offers[kMostOffers];
    for (size_t i = 0; i < s.offers.size(); ++i)
      offers[i] = {address(s.offers[i].location), static_cast<size_t>(s.offers[i].bytes), {}};
    {
      const OfferScope scope(offers, s.offers.size());
      s.op->call(arguments, results);
    }
    if (s.op->schema.returns_list) {
      for (size_t i = 0; i < s.results.size(); ++i)
        if (s.results[i] >= 0) make(s.results[i]) = laid(results[0].tensors()[i], s, i);
    } else {
      for (size_t i = 0; i < s.results.size(); ++i)
        if (s.results[i] >= 0) make(s.results[i]) = laid(results[i].take_tensor(), s, i);
    }
    if (!s.offers.empty()) {
      for (size_t i = 0; i < s.op->schema.returns.size(); ++i) results[i] = Value();
      for (size_t i = 0; i < s.offers.size(); ++i) check_taken(s, offers[i], s.offers[i].slot);
    }
  }

  // What comes after a call relies on the recorded layout of its results.
  static Tensor laid(const Tensor& result, const CallStep& s, size_t i) {
    if (i >= s.strides.size() || s.strides[i].size() != result.sizes().size()) return result;
    const Dims& wanted = s.strides[i];
    bool same = true;
    for (int64_t d = 0; d < result.dim(); ++d) same &= result.size(d) == 1 || result.stride(d) == wanted[d];
    if (same || result.numel() == 0) return result;
    Tensor moved = empty_strided(result.sizes(), wanted, result.options());
    copy_into(moved, result);
    return moved;
  }

  static constexpr size_t kMaxPointers = 256, kMaxNumbers = 1024;

  static constexpr int64_t kMostWork = int64_t(1) << 40;  // that one loop counts for

 private:
  // An input that may be replaced.
  Tensor& own_input(int slot) {
    if (!owned_) {
      copies_.assign(tensors_, tensors_ + inputs_);
      tensors_ = owned_ = copies_.data();
    }
    return owned_[slot];
  }

  char* address(const Location& l) const {
    if (l.slot >= 0) return static_cast<char*>(at(l.slot).raw()) + l.bytes;
    return arena_->data() + (*block_offsets_)[~l.slot] + l.bytes;
  }

  void run(const LoopStep& s, int threads) const {
    void* pointers[kMaxPointers];
    int64_t numbers[kMaxNumbers];
    for (size_t i = 0; i < s.pointers.size(); ++i) pointers[i] = address(s.pointers[i]);
    std::copy(s.numbers.begin(), s.numbers.end(), numbers);
    run_loop(s.entry, pointers, numbers, threads, time_of(s.work));
  }

  // A place was taken by the result that it was meant for, by another one, or by something that lived during
  // the call. Everything but the first gets memory of its own, and so does what somebody else knows of: the
  // place will be used again.
  void check_taken(const CallStep& s, Offer& offer, int meant) {
    if (!offer.taken) return;
    int64_t known = 1;
    for (int slot : s.results) known += slot >= 0 && at(slot).defined() && at(slot)->storage == offer.taken;
    if (offer.taken->use_count() == 1) return;
    const bool right = at(meant).defined() && at(meant)->storage == offer.taken && known == 2;
    if (!right || offer.taken->use_count() > known)
      move_out(*offer.taken);
    else
      placed_.push_back(std::move(offer.taken));
  }

  const Tensor* tensors_;
  Tensor* owned_;  // the same, if inputs may be let go of
  std::vector<Tensor> copies_;
  const int inputs_;
  std::vector<Tensor> made_;
  const Device device_;
  const std::vector<int64_t>* const block_offsets_;
  const Tensor* states_;
  int64_t taken_ = 0;  // of them
  void* stream_ = nullptr;
  std::optional<ArenaBlock> arena_;
  std::vector<Ref<Storage>> placed_;  // storages in it
};

}  // namespace

void run_loop(Entry entry, void* const* pointers, int64_t* numbers, int threads, double time) {
  const LoopThreads all{threads,
                        [](const LoopThreads* all, PieceFunction function, const void* context) {
                          run_pieces(static_cast<int>(all->count), function, context, all->time);
                        },
                        time};
  numbers[0] = reinterpret_cast<int64_t>(&all);
  entry(pointers, numbers);
}

void Program::lay_out() {
  arena = static_cast<size_t>(lay_out_arena(blocks, block_offsets));
}

std::vector<Tensor> Program::execute(const Tensor* tensors, const Tensor* states, Tensor* owned,
                                     const Tensor* kept_values) const {
  const ExcludeKeys below(KeySet(Key::Autograd) | KeySet(Key::Autocast) | KeySet(Key::Python));
  const PoolHold workers_stay_awake;
  Runner runner(tensors, *this, states, owned);
  for (size_t i = 0; i < constants.size(); ++i) runner.make(inputs + static_cast<int>(i)) = constants[i];
  const int after = inputs + static_cast<int>(constants.size());
  for (size_t i = 0; i < kept.size(); ++i)
    runner.make(after + static_cast<int>(i)) = kept_values ? kept_values[i] : kept[i]->get(tensors);
  for (const Step& step : steps) std::visit([&](const auto& s) { runner(s); }, step);
  for (int i : written) tensors[i].bump_version();
  std::vector<Tensor> results;
  results.reserve(outputs.size());
  for (int slot : outputs) results.push_back(slot < 0 ? Tensor() : runner.at(slot));
  return results;
}

}  // namespace fl::compiled
