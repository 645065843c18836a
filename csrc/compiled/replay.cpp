#include "compiled/replay.h"

#include <dlfcn.h>

#include <algorithm>
#include <unordered_map>

#include "compiled/program.h"
#include "core/random.h"

namespace fl::compiled {
namespace {

// The part of the CUDA library's interface that graphs need, found by name: the library is opened at run
// time.
struct Library {
  int (*begin)(int, void*, uint64_t, int);
  int (*end)(int, void*, void**, void**);
  int (*launch)(void*, void*);
  void (*destroy)(int, void*, void*);
  void (*release_pool)(int, uint64_t);
  int (*make_stream)(int, int, void**);
  void* (*current_stream)(int);
  void (*set_stream)(int, void*);
  int (*synchronize)(void*);
  bool complete = true;

  Library() {
    find(begin, "flcuda_graph_begin");
    find(end, "flcuda_graph_end");
    find(launch, "flcuda_graph_launch");
    find(destroy, "flcuda_graph_destroy");
    find(release_pool, "flcuda_release_pool");
    find(make_stream, "flcuda_stream_create");
    find(current_stream, "flcuda_current_stream");
    find(set_stream, "flcuda_set_stream");
    find(synchronize, "flcuda_stream_synchronize");
  }
  template <class F>
  void find(F& function, const char* name) {
    function = reinterpret_cast<F>(dlsym(RTLD_DEFAULT, name));
    complete = complete && function != nullptr;
  }
};

const Library& library() {
  static const Library library;
  return library;
}

std::atomic<uint64_t> next_pool{uint64_t(1) << 40};  // beyond those that programs number themselves

int random_steps(const Program& program) {
  return static_cast<int>(std::count_if(program.steps.begin(), program.steps.end(), [](const Step& s) {
    return std::holds_alternative<RandomStateStep>(s);
  }));
}

// Whether a program can be recorded at all: everything it touches is on the device.
bool on_device(const Program& program, const Tensor* tensors) {
  const auto there = [&](const Tensor& t) { return t.device() == program.device; };
  return std::all_of(tensors, tensors + program.inputs, there) &&
         std::all_of(program.constants.begin(), program.constants.end(), there) && library().complete;
}

// Where results of recordings lie. What a recording reads of another one (the backward pass of the forward's)
// is there in every run.
class Places {
 public:
  void add(const void* block) {
    std::lock_guard<std::mutex> lock(mutex_);
    ++count_[block];
  }
  void remove(const void* block) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (--count_[block] == 0) count_.erase(block);
  }
  bool has(const void* block) {
    std::lock_guard<std::mutex> lock(mutex_);
    return count_.count(block) != 0;
  }
  static Places& get() {
    static auto* const places = new Places;  // recordings may outlive every other static
    return *places;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<const void*, int> count_;
};

}  // namespace

Replay::Recording::Recording(Device where) : device(std::max<int>(where.index, 0)), pool(next_pool++) {}

Replay::Recording::~Recording() {
  outputs.clear();
  for (const Ref<Storage>& block : blocks) Places::get().remove(block->data);
  blocks.clear();
  if (executable) library().destroy(device, graph, executable);
  library().release_pool(device, pool);
}

std::vector<Tensor> Replay::run(const Program& program, const Tensor* tensors) {
  std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (!lock || state_ == State::Off) return program.execute(tensors);
  if (state_ == State::Cold) return first_run(program, tensors);
  bool usable = state_ == State::Recorded;
  for (int i = 0; i < program.inputs; ++i) {
    const bool lent = std::any_of(lent_.begin(), lent_.end(),
                                  [&](const Ref<Storage>& s) { return s == tensors[i]->storage; });
    if (!in_place_[i] || (tensors[i].raw() == addresses_[i] && !lent)) continue;
    if (state_ == State::Warm && !lent && Places::get().has(tensors[i]->storage->data)) {
      addresses_[i] = tensors[i].raw();
      continue;
    }
    in_place_[i] = false;
    usable = false;
  }
  if (!usable) {
    constexpr int kMostRecordings = 3;
    if (recordings_ == kMostRecordings || !record(program, tensors)) {
      recording_.reset();
      state_ = State::Off;
      return program.execute(tensors);
    }
  }
  return replay(program, tensors);
}

// Runs step by step, so that libraries set themselves up, and looks whether the program can be recorded.
std::vector<Tensor> Replay::first_run(const Program& program, const Tensor* tensors) {
  Generator& generator = default_generator(program.device.type);
  const uint64_t before = generator.state().offset;
  std::vector<Tensor> outputs = program.execute(tensors);
  // Operators that draw random numbers by themselves would draw the same ones in every run.
  const bool draws = generator.state().offset - before != static_cast<uint64_t>(random_steps(program));
  if (draws || !on_device(program, tensors)) {
    state_ = State::Off;
    return outputs;
  }
  state_ = State::Warm;
  in_place_.assign(program.inputs, true);
  for (int i = 0; i < program.inputs; ++i) addresses_.push_back(tensors[i].raw());
  return outputs;
}

bool Replay::record(const Program& program, const Tensor* tensors) {
  const Library& cuda = library();
  move_held_results();
  recording_.reset();
  ++recordings_;
  auto recording = std::make_shared<Recording>(program.device);
  const int device = recording->device;
  inputs_.assign(tensors, tensors + program.inputs);
  for (int i = 0; i < program.inputs; ++i)
    if (!in_place_[i])
      inputs_[i] = empty_strided(tensors[i].sizes(), tensors[i].strides(), tensors[i].options());
    else if (Places::get().has(tensors[i]->storage->data))
      inputs_[i] = alias(tensors[i], tensors[i].sizes(), tensors[i].strides(), tensors[i].offset());
  if (const int n = random_steps(program)) states_ = empty({n, 2}, {DType::Int64, program.device});
  void* const current = cuda.current_stream(device);
  if (!stream_ && cuda.make_stream(device, 0, &stream_) != 0) return false;
  cuda.synchronize(current);
  cuda.set_stream(device, stream_);
  constexpr int kRelaxed = 2;  // other threads may go on with what they do
  bool complete = cuda.begin(device, stream_, recording->pool, kRelaxed) == 0;
  if (complete) {
    try {
      recording->outputs = program.execute(inputs_.data(), &states_);
    } catch (const std::exception&) {
      complete = false;
    } catch (const ForeignError& error) {  // of an operator that is Python, and waits for the device, say
      error.forget();
      complete = false;
    }
    complete = cuda.end(device, stream_, &recording->graph, &recording->executable) == 0 && complete;
  }
  cuda.set_stream(device, current);
  if (!complete) return false;
  state_ = State::Recorded;
  results_.clear();
  for (const Tensor& t : recording->outputs) {
    Result result;
    if (t.defined()) {
      for (int i = 0; i < program.inputs && result.input < 0; ++i)
        if (t->storage == inputs_[i]->storage) result.input = i;
      const bool constant = std::any_of(program.constants.begin(), program.constants.end(),
                                        [&](const Tensor& c) { return c->storage == t->storage; });
      if (result.input < 0 && !constant) {
        const auto block = std::find(recording->blocks.begin(), recording->blocks.end(), t->storage);
        result.block = static_cast<int>(block - recording->blocks.begin());
        if (block == recording->blocks.end()) {
          recording->blocks.push_back(t->storage);
          Places::get().add(t->storage->data);
        }
      }
    }
    results_.push_back(result);
  }
  // What another recording made must not look as if somebody kept it.
  for (int i = 0; i < program.inputs; ++i)
    if (in_place_[i] && Places::get().has(inputs_[i]->storage->data))
      inputs_[i]->storage = Storage::adopt(nullptr, 0, program.device, [](void*) {});
  recording_ = std::move(recording);
  return true;
}

// New states for the random streams, all in one copy.
void Replay::take_states(const Program& program) {
  if (!states_.defined()) return;
  Tensor fresh = empty(states_.sizes(), {DType::Int64, Device()});
  int64_t* p = fresh.data<int64_t>();
  for (int64_t i = 0; i < fresh.size(0); ++i) {
    const Generator::State state = default_generator(program.device.type).take();
    p[2 * i] = static_cast<int64_t>(state.seed);
    p[2 * i + 1] = static_cast<int64_t>(state.offset);
  }
  copy_into(states_, fresh);
}

void Replay::move_held_results() {
  for (Ref<Storage>& held : lent_) {
    if (held->use_count() == 1) continue;
    Ref<Storage> fresh = Storage::allocate(held->bytes, held->device);
    Tensor from = empty({static_cast<int64_t>(held->bytes)}, {DType::UInt8, Device{DeviceType::Meta}});
    from->storage = held;
    from->device = held->device;
    Tensor to = alias(from, from.sizes(), from.strides(), 0);
    to->storage = fresh;
    copy_into(to, from);
    std::swap(held->data, fresh->data);
    std::swap(held->foreign_delete, fresh->foreign_delete);
  }
  lent_.clear();
}

std::vector<Tensor> Replay::replay(const Program& program, const Tensor* tensors) {
  const Library& cuda = library();
  for (int i = 0; i < program.inputs; ++i)
    if (!in_place_[i]) copy_into(inputs_[i], tensors[i]);
  move_held_results();
  take_states(program);
  FL_CHECK(cuda.launch(recording_->executable, cuda.current_stream(recording_->device)) == 0,
           "[compile] expected a recorded graph to run, got an error of the device");
  for (int i : program.written) {
    if (!in_place_[i]) copy_into(tensors[i], inputs_[i]);
    tensors[i].bump_version();
  }
  for (const Ref<Storage>& block : recording_->blocks)
    lent_.push_back(
        Storage::adopt(block->data, block->bytes, block->device, [recording = recording_](void*) {}));
  std::vector<Tensor> results;
  results.reserve(recording_->outputs.size());
  for (size_t k = 0; k < recording_->outputs.size(); ++k) {
    const Tensor& t = recording_->outputs[k];
    const Result& from = results_[k];
    if (from.input >= 0) {
      const Tensor& mine = inputs_[from.input];
      const bool itself = t.same(mine);
      const Tensor& its = tensors[from.input];
      results.push_back(
          itself ? its : alias(its, t.sizes(), t.strides(), t.offset() - mine.offset() + its.offset()));
      continue;
    }
    Tensor own = t.defined() ? alias(t, t.sizes(), t.strides(), t.offset()) : Tensor();
    if (from.block >= 0) own->storage = lent_[from.block];
    results.push_back(std::move(own));
  }
  return results;
}

}  // namespace fl::compiled
