#include "runtime/package_plan.h"

#include <cstring>
#include <unordered_map>

#include "compiled/kept_value.h"
#include "dispatch/operator.h"

namespace fl::runtime {
namespace {

using namespace compiled;

constexpr std::string_view kMagic = "FLPLAN\r\n";
constexpr int kDeepest = 8;  // nesting of kept values

// An archive gets each thing by reference: the writer reads it, the reader assigns it.
class Writer {
 public:
  static constexpr bool reads = false;

  Writer(const std::vector<Tensor>& constants, Device device) : constants_(constants), device(device) {}

  std::string bytes;

  void raw(void* data, size_t size) { bytes.append(static_cast<const char*>(data), size); }
  void number(int64_t& value) {
    uint64_t rest = (static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63);
    for (; rest >= 0x80; rest >>= 7) bytes += static_cast<char>(rest | 0x80);
    bytes += static_cast<char>(rest);
  }
  size_t length(size_t n) {
    auto value = static_cast<int64_t>(n);
    number(value);
    return n;
  }
  void kernel(Entry& entry) {
    auto handle = static_cast<int64_t>(reinterpret_cast<intptr_t>(entry));
    number(handle);
  }
  void function(void*& function) {
    auto handle = static_cast<int64_t>(reinterpret_cast<intptr_t>(function));
    number(handle);
  }
  void text(std::string& value) {
    length(value.size());
    raw(value.data(), value.size());
  }
  size_t position() const { return bytes.size(); }
  void constant(Tensor& tensor) {
    for (size_t i = 0; i < constants_.size(); ++i) {
      if (!constants_[i].same(tensor)) continue;
      length(i);
      return;
    }
    fail("[package] expected constants of programs among those of the package, got another tensor");
  }

 private:
  const std::vector<Tensor>& constants_;

 public:
  const Device device;  // of the programs
};

class Reader {
 public:
  static constexpr bool reads = true;

  Reader(std::string_view bytes, const std::vector<Entry>& entries, const std::vector<void*>& functions,
         const std::vector<Tensor>& constants)
      : bytes_(bytes), entries_(entries), functions_(functions), constants_(constants) {}

  Device device;  // of the programs

  void raw(void* data, size_t size) {
    FL_CHECK(size <= bytes_.size() - at_, "[package] expected a whole plan, got one that ends early");
    if (size) std::memcpy(data, bytes_.data() + at_, size);
    at_ += size;
  }
  void number(int64_t& value) {
    uint64_t result = 0;
    for (int shift = 0;; shift += 7) {
      FL_CHECK(at_ < bytes_.size() && shift < 64, "[package] expected an integer, got the end of the plan");
      const auto byte = static_cast<unsigned char>(bytes_[at_++]);
      result |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) break;
    }
    value = static_cast<int64_t>(result >> 1) ^ -static_cast<int64_t>(result & 1);
  }
  // Every element of a list takes a byte or more.
  size_t length(size_t) {
    int64_t n = 0;
    number(n);
    FL_CHECK(n >= 0 && static_cast<uint64_t>(n) <= bytes_.size() - at_,
             "[package] expected a list of at most ", bytes_.size() - at_, " elements, got ", n);
    return static_cast<size_t>(n);
  }
  void kernel(Entry& entry) {
    int64_t handle = 0;
    number(handle);
    FL_CHECK(handle >= 1 && static_cast<uint64_t>(handle) <= entries_.size(), "[package] expected one of ",
             entries_.size(), " kernels, got ", handle);
    entry = entries_[static_cast<size_t>(handle) - 1];
  }
  void function(void*& function) {
    int64_t handle = 0;
    number(handle);
    FL_CHECK(handle >= 1 && static_cast<uint64_t>(handle) <= functions_.size(), "[package] expected one of ",
             functions_.size(), " kernels of an accelerator, got ", handle);
    function = functions_[static_cast<size_t>(handle) - 1];
  }
  void text(std::string& value) {
    value.resize(length(0));
    raw(value.data(), value.size());
  }
  void constant(Tensor& tensor) {
    int64_t index = 0;
    number(index);
    FL_CHECK(index >= 0 && static_cast<uint64_t>(index) < constants_.size(), "[package] expected one of ",
             constants_.size(), " constants, got ", index);
    tensor = constants_[static_cast<size_t>(index)];
  }
  bool at_end() const { return at_ == bytes_.size(); }
  size_t position() const { return at_; }
  // What other plans keep is written again for each: the same bytes since `begin` are the same value.
  std::shared_ptr<KeptValue> shared(size_t begin, const std::shared_ptr<KeptValue>& value) {
    return kept_.try_emplace(bytes_.substr(begin, at_ - begin), value).first->second;
  }

 private:
  std::unordered_map<std::string_view, std::shared_ptr<KeptValue>> kept_;
  std::string_view bytes_;
  const std::vector<Entry>& entries_;
  const std::vector<void*>& functions_;
  const std::vector<Tensor>& constants_;
  size_t at_ = 0;
};

// ---------------------------------------------------------------- small things

template <class A>
void exchange(A& a, int64_t& value) {
  a.number(value);
}
template <class A>
void exchange(A& a, int& value) {
  int64_t wide = value;
  a.number(wide);
  FL_CHECK(wide == static_cast<int>(wide), "[package] expected an integer of 32 bits, got ", wide);
  value = static_cast<int>(wide);
}
template <class A>
void exchange(A& a, uint8_t& value) {
  int64_t wide = value;
  a.number(wide);
  FL_CHECK(wide >= 0 && wide < 256, "[package] expected an integer of 8 bits, got ", wide);
  value = static_cast<uint8_t>(wide);
}
template <class A>
void exchange(A& a, bool& value) {
  int64_t wide = value;
  a.number(wide);
  value = wide != 0;
}
template <class A>
void exchange(A& a, double& value) {
  a.raw(&value, sizeof value);
}
template <class A>
void exchange(A& a, std::string& value) {
  a.text(value);
}
template <class A>
void exchange(A& a, DType& value) {
  auto number = static_cast<int64_t>(value);
  a.number(number);
  FL_CHECK(number >= 0 && number < kAllDTypes, "[package] expected a dtype, got the number ", number);
  value = static_cast<DType>(number);
}
template <class A>
void exchange(A& a, Device& value) {
  auto type = static_cast<int64_t>(value.type);
  a.number(type);
  const bool is_own = a.device.type != DeviceType::CPU && type == static_cast<int64_t>(a.device.type);
  FL_CHECK(is_own || type == static_cast<int64_t>(DeviceType::CPU) ||
               type == static_cast<int64_t>(DeviceType::Meta),
           "[package] expected the device cpu or that of the package, got the number ", type);
  value = is_own ? a.device : Device{static_cast<DeviceType>(type)};
}
template <class A>
void exchange(A& a, Dims& value) {
  value.resize(a.length(value.size()));
  for (int64_t& x : value) a.number(x);
}
template <class A, class T>
void exchange(A& a, std::vector<T>& list) {
  list.resize(a.length(list.size()));
  for (T& x : list) exchange(a, x);
}
template <class A>
void exchange(A& a, std::pair<int, int>& pair) {
  exchange(a, pair.first);
  exchange(a, pair.second);
}

// ---------------------------------------------------------------- values and operators

template <class A>
void exchange_list(A& a, Value& value, Value::Tag tag) {
  if (tag == Value::Tag::IntList) {
    std::vector<int64_t> list;
    if constexpr (!A::reads) list = value.ints().vec();
    exchange(a, list);
    if constexpr (A::reads) value = Value(list);
  } else if (tag == Value::Tag::FloatList) {
    std::vector<double> list;
    if constexpr (!A::reads) list.assign(value.floats(), value.floats() + value.length());
    exchange(a, list);
    if constexpr (A::reads) value = Value(list);
  } else {
    size_t n = a.length(A::reads ? 0 : value.length());
    const auto flags = std::make_unique<bool[]>(n);
    if constexpr (!A::reads) std::copy_n(value.bools(), n, flags.get());
    for (size_t i = 0; i < n; ++i) exchange(a, flags[i]);
    if constexpr (A::reads) {
      const Value borrowed = Value::borrow(flags.get(), n);
      value = borrowed;  // copying makes its own
    }
  }
}

template <class A, class T>
void exchange_plain(A& a, Value& value, T current) {
  exchange(a, current);
  if constexpr (A::reads) value = Value(current);
}

template <class E, class A>
void exchange_enumerator(A& a, Value& value, E current, int count) {
  auto number = static_cast<int64_t>(current);
  a.number(number);
  FL_CHECK(number >= 0 && number < count, "[package] expected an enumerator below ", count, ", got ", number);
  if constexpr (A::reads) value = Value(static_cast<E>(number));
}

// A scalar that stands for a tensor, as in 2.0 * x.
template <class A>
void exchange_wrapped(A& a, Value& value) {
  bool is_float = false, is_bool = false;
  double number = 0;
  int64_t integer = 0;
  if constexpr (!A::reads) {
    const Tensor tensor = value.tensor();
    FL_CHECK(tensor->wrapped_number && !is_complex(tensor.dtype()),
             "[package] expected a real scalar among the arguments of a call, got another tensor");
    const Scalar scalar = item(tensor);
    is_float = is_floating(tensor.dtype());
    is_bool = tensor.dtype() == DType::Bool;
    if (is_float)
      number = scalar.to<double>();
    else
      integer = scalar.to<int64_t>();
  }
  exchange(a, is_float);
  exchange(a, is_bool);
  exchange(a, number);
  exchange(a, integer);
  if constexpr (A::reads)
    value = Value(wrapped_number(is_float  ? Scalar(number)
                                 : is_bool ? Scalar(integer != 0)
                                           : Scalar(integer)));
}

template <class A>
void exchange(A& a, Value& value) {
  auto tag = static_cast<uint8_t>(value.tag());
  exchange(a, tag);
  switch (static_cast<Value::Tag>(tag)) {
    case Value::Tag::None:
      if constexpr (A::reads) value = Value();
      return;
    case Value::Tag::Tensor:
      return exchange_wrapped(a, value);
    case Value::Tag::Bool:
      return exchange_plain(a, value, A::reads ? false : value.to_bool());
    case Value::Tag::Int:
      return exchange_plain(a, value, A::reads ? int64_t(0) : value.to_int());
    case Value::Tag::Float:
      return exchange_plain(a, value, A::reads ? 0.0 : value.to_float());
    case Value::Tag::DType:
      return exchange_plain(a, value, A::reads ? DType::Float : value.to_dtype());
    case Value::Tag::Device:
      return exchange_plain(a, value, A::reads ? Device{} : value.to_device());
    case Value::Tag::MemoryFormat:
      return exchange_enumerator(a, value, A::reads ? MemoryFormat::Contiguous : value.to_memory_format(), 4);
    case Value::Tag::Layout:
      return exchange_enumerator(a, value, A::reads ? Layout::Strided : value.to_layout(), 4);
    case Value::Tag::IntList:
    case Value::Tag::FloatList:
    case Value::Tag::BoolList:
      return exchange_list(a, value, static_cast<Value::Tag>(tag));
    case Value::Tag::String: {
      std::string text;
      if constexpr (!A::reads) text = std::string(value.string());
      exchange(a, text);
      if constexpr (A::reads) value = Value(std::string_view(text));
      return;
    }
    default:
      fail("[package] expected arguments that can be written, got one of kind ", static_cast<int>(tag));
  }
}

template <class A>
void exchange(A& a, const Operator*& op) {
  std::string name;
  if constexpr (!A::reads) name = op->schema.full_name();
  exchange(a, name);
  if constexpr (A::reads) {
    op = OperatorTable::get().find(name);
    FL_CHECK(op != nullptr, "[package] expected operators of this library, got ", name);
  }
}

// ---------------------------------------------------------------- steps

template <class A>
void exchange(A& a, Location& location) {
  exchange(a, location.slot);
  exchange(a, location.bytes);
}
template <class A, class S>
void exchange_geometry(A& a, S& step) {
  exchange(a, step.sizes);
  exchange(a, step.strides);
  exchange(a, step.dtype);
}
template <class A>
void exchange(A& a, AllocateStep& s) {
  exchange(a, s.slot);
  exchange_geometry(a, s);
}
template <class A>
void exchange(A& a, ViewStep& s) {
  exchange(a, s.slot);
  exchange(a, s.base);
  exchange_geometry(a, s);
  exchange(a, s.offset);
}
template <class A>
void exchange(A& a, ArenaTensorStep& s) {
  exchange(a, s.slot);
  exchange(a, s.location);
  exchange_geometry(a, s);
}
template <class A>
void exchange(A& a, UnshareStep& s) {
  exchange(a, s.slot);
}
template <class A>
void exchange(A& a, LoopStep& s) {
  a.kernel(s.entry);
  exchange(a, s.pointers);
  exchange(a, s.numbers);
  exchange(a, s.work);
}
template <class A>
void exchange(A& a, ConcurrentLoopsStep& s) {
  exchange(a, s.loops);
}
template <class A>
void exchange(A& a, unsigned& value) {
  int64_t wide = value;
  a.number(wide);
  FL_CHECK(wide >= 0 && wide <= INT32_MAX, "[package] expected a count of 31 bits, got ", wide);
  value = static_cast<unsigned>(wide);
}
template <class A>
void exchange(A& a, KernelStep& s) {
  FL_CHECK(!s.outside, "[package] expected kernels in images, got one that a device from outside launches");
  a.function(s.function);
  for (unsigned& count : s.grid) exchange(a, count);
  exchange(a, s.threads);
  exchange(a, s.shared);
  exchange(a, s.pointers);
  exchange(a, s.numbers);
  exchange(a, s.wide);
  exchange(a, s.waits);
}
template <class A>
void exchange(A& a, RandomStateStep& s) {
  exchange(a, s.slot);
}
template <class A>
void exchange(A& a, CallStep::List& list) {
  exchange(a, list.argument);
  exchange(a, list.slots);
}
template <class A>
void exchange(A& a, CallStep::Offered& offer) {
  exchange(a, offer.location);
  exchange(a, offer.bytes);
  exchange(a, offer.slot);
}
template <class A>
void exchange(A& a, CallStep& s) {
  exchange(a, s.op);
  exchange(a, s.arguments);
  exchange(a, s.tensors);
  exchange(a, s.lists);
  exchange(a, s.scalars);
  exchange(a, s.results);
  exchange(a, s.offers);
  exchange(a, s.strides);
}
template <class A>
void exchange(A& a, ReleaseStep& s) {
  exchange(a, s.slots);
}

// The alternative of a step that is read: the one of this index.
template <size_t I = 0>
Step step_of(size_t index) {
  if constexpr (I < std::variant_size_v<Step>)
    return index == I ? Step(std::in_place_index<I>) : step_of<I + 1>(index);
  fail("[package] expected a kind of step, got the number ", index);
}

template <class A>
void exchange(A& a, Step& step) {
  auto index = static_cast<uint8_t>(step.index());
  exchange(a, index);
  if constexpr (A::reads) step = step_of(index);
  std::visit([&](auto& s) { exchange(a, s); }, step);
}

// ---------------------------------------------------------------- programs

template <class A>
void exchange(A& a, BlockSpan& block) {
  exchange(a, block.extents);
  exchange(a, block.first);
  exchange(a, block.last);
}
template <class A>
void exchange(A& a, Room& room) {
  exchange(a, room.wanted);
  exchange(a, room.available);
}

template <class A>
void exchange(A& a, Program& program, int depth = 0) {
  FL_CHECK(depth < kDeepest, "[package] expected values that are kept to be nested less deeply, got ", depth);
  exchange(a, program.inputs);
  exchange(a, program.slots);
  exchange(a, program.blocks);
  exchange(a, program.room);
  exchange(a, program.device);
  program.constants.resize(a.length(program.constants.size()));
  for (Tensor& constant : program.constants) a.constant(constant);
  program.kept.resize(a.length(program.kept.size()));
  for (auto& kept_value : program.kept) {
    [[maybe_unused]] const size_t begin = a.position();
    if constexpr (A::reads) kept_value = std::make_shared<KeptValue>();
    exchange(a, kept_value->inputs);
    exchange(a, kept_value->program, depth + 1);
    if constexpr (A::reads) {
      kept_value->program.lay_out();
      kept_value = a.shared(begin, kept_value);
    }
  }
  exchange(a, program.steps);
  exchange(a, program.outputs);
  exchange(a, program.written);
}

template <class A>
void exchange(A& a, InputSpec& input) {
  exchange_geometry(a, input);
  input.aligned = true;
}

template <class A>
void exchange(A& a, Polynomial::Term& term) {
  for (uint8_t& power : term.powers) exchange(a, power);
  exchange(a, term.numerator);
}
template <class A>
void exchange(A& a, Polynomial& polynomial) {
  exchange(a, polynomial.terms);
  exchange(a, polynomial.denominator);
}

template <class A>
void exchange(A& a, SizePlan& plan) {
  if constexpr (A::reads) plan.model = Ref<CompiledGraph>(new CompiledGraph());
  exchange(a, plan.model->inputs);
  exchange(a, plan.model->results);
  exchange(a, plan.model->forward);
  exchange(a, plan.class_of);
  exchange(a, plan.polynomials);
  exchange(a, plan.symbols);
  for (int64_t& x : plan.origin) exchange(a, x);
  for (Point& row : plan.lattice.rows)
    for (int64_t& x : row) exchange(a, x);
}

// Whether a plan is of the second version.
template <class A>
bool has_devices(const A& a) {
  return a.device.type != DeviceType::CPU;
}

template <class A>
void exchange(A& a, ConstantEntry& constant) {
  exchange(a, constant.name);
  exchange_geometry(a, constant);
  exchange(a, constant.offset);
  exchange(a, constant.bytes);
  if (has_devices(a)) exchange(a, constant.device);
}
template <class A>
void exchange(A& a, InputEntry& input) {
  exchange(a, input.name);
  exchange(a, input.dtype);
  exchange(a, input.sizes);
  if (has_devices(a)) exchange(a, input.device);
}
template <class A>
void exchange(A& a, ImageEntry& image) {
  exchange(a, image.name);
  exchange(a, image.shared);
}
template <class A>
void exchange(A& a, SizeRange& range) {
  exchange(a, range.input);
  exchange(a, range.dim);
  exchange(a, range.low);
  exchange(a, range.high);
}
template <class A>
void exchange(A& a, PlanVariant& variant) {
  exchange(a, variant.plan);
  exchange(a, variant.samples);
}

}  // namespace

std::string write_plan(PackagePlan& plan) {
  Writer writer(plan.tensors, plan.device);
  writer.bytes = kMagic;
  int64_t version = has_devices(writer) ? kAcceleratorVersion : kHostVersion;
  writer.number(version);
  if (has_devices(writer)) exchange(writer, plan.images);
  exchange(writer, plan.kernels);
  exchange(writer, plan.constants);
  exchange(writer, plan.input_constants);
  exchange(writer, plan.inputs);
  exchange(writer, plan.outputs);
  exchange(writer, plan.ranges);
  exchange(writer, plan.variants);
  return writer.bytes;
}

PackagePlan read_plan(std::string_view bytes, const PlanContext& context) {
  std::vector<Entry> entries;
  std::vector<void*> functions;
  PackagePlan plan;
  Reader reader(bytes, entries, functions, plan.tensors);
  std::string magic(kMagic.size(), 0);
  reader.raw(magic.data(), magic.size());
  FL_CHECK(magic == kMagic, "[package] expected a plan, got other bytes");
  int64_t version = 0;
  reader.number(version);
  FL_CHECK(version == kHostVersion || version == kAcceleratorVersion, "[package] expected a plan of version ",
           kHostVersion, " or ", kAcceleratorVersion, ", got ", version);
  if (version == kAcceleratorVersion) {
    plan.device = reader.device = context.accelerator();
    exchange(reader, plan.images);
    for (const ImageEntry& image : plan.images) functions.push_back(context.function(image));
  }
  exchange(reader, plan.kernels);
  for (const std::string& name : plan.kernels) entries.push_back(context.entry(name));
  exchange(reader, plan.constants);
  for (const ConstantEntry& constant : plan.constants) plan.tensors.push_back(context.constant(constant));
  exchange(reader, plan.input_constants);
  exchange(reader, plan.inputs);
  exchange(reader, plan.outputs);
  exchange(reader, plan.ranges);
  exchange(reader, plan.variants);
  FL_CHECK(reader.at_end(), "[package] expected the end of the plan, got more bytes");
  check_plan(plan);
  return plan;
}

}  // namespace fl::runtime
