// The machine: evaluates the trees of a linked program over the dispatcher. Programs are shared by threads
// and never change; what a call computes is in its frame.
#include <cstdint>
#include <future>
#include <iostream>
#include <memory>
#include <mutex>
#include <thread>

#include "autograd/autocast.h"
#include "core/device.h"
#include "definitions/operations.h"
#include "runtime/dlpack.h"
#include "script/program.h"

namespace fl::script {
namespace {

constexpr ptrdiff_t kStack = 2 << 20;  // bytes of stack that calls within each other may take
constexpr int kMostThreads = 32;       // forks beyond these run at once, in the thread that forks

std::atomic<int> live_threads{0};

// A value that another thread computes, or that is computed when it is waited for.
struct Future final : Opaque {
  std::shared_future<Object> value;
};

// Mixed precision as an `autocast` of the program says, while it lives.
class MixedPrecision {
 public:
  // Null for other managers.
  static std::unique_ptr<MixedPrecision> of(const Object& manager) {
    const auto* instance = as<Instance>(manager);
    const std::string_view name = instance ? std::string_view(instance->type.name) : std::string_view();
    constexpr std::string_view kEnd = ".autocast_mode.autocast";
    if (name.rfind("__torch__.torch.", 0) != 0 || name.size() < kEnd.size() ||
        name.substr(name.size() - kEnd.size()) != kEnd)
      return nullptr;
    const Object device = get_attribute(manager, "device"), dtype = get_attribute(manager, "fast_dtype");
    FL_CHECK(device.is(Type::String) && dtype.is(Type::Int),
             "[jit] expected a device and a dtype of autocast");
    return std::make_unique<MixedPrecision>(parse_device(device.text()).type,
                                            runtime::dtype_of(static_cast<fl_dtype>(dtype.integer)),
                                            definitions::truth(get_attribute(manager, "_enabled")));
  }

  MixedPrecision(DeviceType device, DType dtype, bool on)
      : device_(device), enabled_(autocast::enabled(device)), dtype_(autocast::lower_dtype(device)) {
    static std::once_flag installed[kDeviceSlots];
    std::call_once(installed[device_slot(device)], autocast::install_rules, device);
    autocast::set_enabled(device, on);
    autocast::set_lower_dtype(device, dtype);
    autocast::increment_nesting();
  }
  ~MixedPrecision() {
    if (autocast::decrement_nesting() == 0) autocast::clear_cache();
    autocast::set_enabled(device_, enabled_);
    autocast::set_lower_dtype(device_, dtype_);
  }
  MixedPrecision(const MixedPrecision&) = delete;
  MixedPrecision& operator=(const MixedPrecision&) = delete;

 private:
  const DeviceType device_;
  const bool enabled_;
  const DType dtype_;
};

// Where the first call of a thread began.
thread_local const char* stack_base = nullptr;

struct StackCheck {
  StackCheck() {
    const char here = 0;
    if (!stack_base) {
      stack_base = &here;
      owner_ = true;
    }
    const ptrdiff_t used = stack_base > &here ? stack_base - &here : &here - stack_base;
    if (used > kStack) {
      fail("[jit] expected calls that end, got calls within each other that take ", used, " bytes of stack");
    }
  }
  ~StackCheck() {
    if (owner_) stack_base = nullptr;
  }

 private:
  bool owner_ = false;
};

enum class Flow : uint8_t { Next, Return };

class Frame {
 public:
  Frame(const std::shared_ptr<Program>& program, const Function& function, Objects variables)
      : program_(program), function_(function), variables_(std::move(variables)) {}

  Object run(const Tree& body) {
    statement(body);
    return std::move(result_);
  }

 private:
  // ---------------------------------------------------------------- statements

  Flow statement(const Tree& t) {
    switch (t.op) {
      case Op::Block:
        for (const Tree& child : t.children)
          if (statement(child) == Flow::Return) return Flow::Return;
        return Flow::Next;
      case Op::Assign:
        assign(t.children[1], value(t.children[0]));
        return Flow::Next;
      case Op::If:
        return statement(t.children[condition(t.children[0]) ? 1 : 2]);
      case Op::While:
        while (condition(t.children[0]))
          if (statement(t.children[1]) == Flow::Return) return Flow::Return;
        return Flow::Next;
      case Op::For:
        return loop(t);
      case Op::With:
        return with(t);
      case Op::Return:
        if (!t.children.empty()) result_ = value(t.children[0]);
        return Flow::Return;
      case Op::Define: {
        auto* closure = new FunctionValue;
        closure->function = &function_;
        closure->body = &t.children[0];
        closure->variables = variables_;
        variables_[static_cast<size_t>(t.slot)] = foreign(closure);
        return Flow::Next;
      }
      case Op::Pass:
        return Flow::Next;
      default:
        value(t);
        return Flow::Next;
    }
  }

  bool condition(const Tree& t) {
    const Object test = value(t);
    FL_CHECK(test.is_number() || test.is(Type::Tensor), "[jit] expected a boolean as a condition, got ",
             type_name(test), where(t));
    return definitions::truth(test);
  }

  Flow loop(const Tree& t) {
    const Tree& source = t.children[1];
    if (source.op == Op::Operator && source.text == "range") {
      Objects ends = arguments(source, 0);
      for (const Object& end : ends)
        FL_CHECK(end.is_integer(), "[jit] expected integers for a range, got ", type_name(end), where(t));
      FL_CHECK(!ends.empty() && ends.size() <= 3, "[jit] expected the end of a range", where(t));
      const int64_t first = ends.size() > 1 ? ends[0].integer : 0,
                    last = ends[ends.size() > 1 ? 1 : 0].integer,
                    step = ends.size() > 2 ? ends[2].integer : 1;
      FL_CHECK(step != 0, "[jit] expected a step that is not zero", where(t));
      for (int64_t i = first; step > 0 ? i < last : i > last;) {
        assign(t.children[0], Object(i));
        if (statement(t.children[2]) == Flow::Return) return Flow::Return;
        if (__builtin_add_overflow(i, step, &i)) break;
      }
      return Flow::Next;
    }
    for (const Object& item : definitions::iterate(value(source))) {
      assign(t.children[0], item);
      if (statement(t.children[2]) == Flow::Return) return Flow::Return;
    }
    return Flow::Next;
  }

  Flow with(const Tree& t) {
    Objects managers;
    std::vector<std::unique_ptr<MixedPrecision>> precisions;
    const auto leave = [&] {
      for (; !managers.empty(); managers.pop_back(), precisions.pop_back())
        call_method(managers.back(), "__exit__", {Object(), Object(), Object()});
    };
    Flow flow = Flow::Next;
    try {
      for (size_t i = 0; i + 1 < t.children.size(); ++i) {
        Object manager = value(t.children[i]);
        call_method(manager, "__enter__", {});
        precisions.push_back(MixedPrecision::of(manager));
        managers.push_back(std::move(manager));
      }
      flow = statement(t.children.back());
    } catch (...) {
      leave();
      throw;
    }
    leave();
    return flow;
  }

  void assign(const Tree& target, Object item) {
    switch (target.op) {
      case Op::Local:
        variables_[static_cast<size_t>(target.slot)] = std::move(item);
        return;
      case Op::Tuple: {
        FL_CHECK(item.is_sequence(), "[jit] expected values to unpack, got ", type_name(item), where(target));
        const Objects items = item.items();
        FL_CHECK(items.size() == target.children.size(), "[jit] expected ", target.children.size(),
                 " values to unpack, got ", items.size(), where(target));
        for (size_t i = 0; i < items.size(); ++i) assign(target.children[i], items[i]);
        return;
      }
      case Op::Attribute:
        return set_attribute(value(target.children[0]), target.text, std::move(item));
      case Op::Subscript: {
        const Object container = value(target.children[0]);
        call_operator(*find_callee("aten", "_set_item"), {container, value(target.children[1]), item}, {});
        return;
      }
      default:
        fail("[jit] expected something to assign to", where(target));
    }
  }

  // ---------------------------------------------------------------- expressions

  Object value(const Tree& t) {
    switch (t.op) {
      case Op::Constant:
        return t.constant;
      case Op::Local:
        return variables_[static_cast<size_t>(t.slot)];
      case Op::Attribute:
        return get_attribute(value(t.children[0]), t.text);
      case Op::Operator:
        return operation(t);
      case Op::Method:
        return method(t);
      case Op::Function: {
        Keywords keywords;
        Objects positional = arguments(t, 0, &keywords);
        return call(program_, *t.function, std::move(positional), keywords);
      }
      case Op::Call:
        return call_value(value(t.children[0]), arguments(t, 1), t);
      case Op::Subscript:
        return item(value(t.children[0]), t);
      case Op::List:
        return Object::list(values(t));
      case Op::Tuple:
        return Object::tuple(values(t));
      case Op::Dict:
        return dict(t);
      case Op::Annotate:
        return annotated(t.children[0], value(t.children[1]));
      case Op::Cast:
        return value(t.children[1]);
      case Op::IsInstance:
        return Object(is_instance(value(t.children[0]), t.children[1]));
      case Op::Condition:
        return value(t.children[condition(t.children[0]) ? 1 : 2]);
      case Op::And:
      case Op::Or:
        for (const Tree& child : t.children)
          if (condition(child) == (t.op == Op::Or)) return Object(t.op == Op::Or);
        return Object(t.op == Op::And);
      default:
        return rare(t);
    }
  }

  Object rare(const Tree& t) {
    switch (t.op) {
      case Op::New:
        return new_instance(program_, *t.type);
      case Op::Construct:
        return named_tuple(*t.type, values(t));
      case Op::Fork:
      case Op::Awaitable:
        return begin(t);
      case Op::Print: {
        std::string line;
        for (const Object& part : values(t)) line += (line.empty() ? "" : " ") + to_text(part);
        std::cout << line << std::endl;
        return {};
      }
      case Op::Slice:
        return Object::of(Type::Slice, values(t));
      case Op::Binary:
      case Op::Compare:
      case Op::Unary:
        return syntax(t);
      default:
        fail("[jit] expected a value, got ", t.text, where(t));
    }
  }

  // Operators that are written as marks: the same as those with names.
  Object syntax(const Tree& t) {
    static const std::map<std::string_view, const char*> names = {{"Add", "add"},
                                                                  {"Sub", "sub"},
                                                                  {"Mult", "mul"},
                                                                  {"Div", "div"},
                                                                  {"FloorDiv", "floordiv"},
                                                                  {"Mod", "remainder"},
                                                                  {"Pow", "pow"},
                                                                  {"MatMult", "matmul"},
                                                                  {"BitAnd", "__and__"},
                                                                  {"BitOr", "__or__"},
                                                                  {"BitXor", "__xor__"},
                                                                  {"LShift", "__lshift__"},
                                                                  {"RShift", "__rshift__"},
                                                                  {"Eq", "eq"},
                                                                  {"NotEq", "ne"},
                                                                  {"Lt", "lt"},
                                                                  {"LtE", "le"},
                                                                  {"Gt", "gt"},
                                                                  {"GtE", "ge"},
                                                                  {"Is", "__is__"},
                                                                  {"IsNot", "__isnot__"},
                                                                  {"Not", "__not__"},
                                                                  {"USub", "neg"},
                                                                  {"Invert", "bitwise_not"}};
    Objects operands = values(t);
    if (t.text == "In" || t.text == "NotIn") {
      const Object handler =
          call_operator(*find_callee("aten", "__contains__"), {operands[1], operands[0]}, {});
      return Object(definitions::truth(handler) == (t.text == "In"));
    }
    const auto name = names.find(t.text);
    const Callee* callee = name == names.end() ? nullptr : find_callee("aten", name->second);
    FL_CHECK(callee != nullptr, "[jit] expected an operator, got ", t.text, where(t));
    return call_operator(*callee, operands, {});
  }

  Objects values(const Tree& t) {
    Objects all;
    all.reserve(t.children.size());
    for (const Tree& child : t.children) all.push_back(value(child));
    return all;
  }

  // Arguments from a child on; those with names go into `keywords`.
  Objects arguments(const Tree& t, size_t first, Keywords* keywords = nullptr) {
    Objects all;
    all.reserve(t.children.size());
    for (size_t i = first; i < t.children.size(); ++i) {
      const size_t at = t.op == Op::Call ? i - 1 : i;
      const bool named = keywords && at < t.names.size() && !t.names[at].empty();
      if (named)
        keywords->emplace_back(t.names[at], value(t.children[i]));
      else
        all.push_back(value(t.children[i]));
    }
    return all;
  }

  Object operation(const Tree& t) {
    FL_CHECK_KIND(t.callee != nullptr, NotImplemented, "[jit] expected an operator of this library, got ",
                  t.text, where(t));
    Keywords keywords;
    const Objects positional = arguments(t, 0, &keywords);
    return call_operator(*t.callee, positional, keywords);
  }

  Object method(const Tree& t) {
    const Object owner = value(t.children[0]);
    Keywords keywords;
    Objects positional = arguments(t, 1, &keywords);
    if (as<Instance>(owner)) return call_method(owner, t.text, std::move(positional), keywords);
    const Callee* callee = find_callee("aten", t.text);  // a method of a tensor or list
    FL_CHECK(callee != nullptr, "[jit] expected a method of ", type_name(owner), ", got ", t.text, where(t));
    positional.insert(positional.begin(), owner);
    return call_operator(*callee, positional, keywords);
  }

  Object call_value(const Object& callable, Objects positional, const Tree& t) {
    const auto* f = as<FunctionValue>(callable);
    FL_CHECK(f != nullptr, "[jit] expected a function, got ", type_name(callable), where(t));
    if (f->body) return Frame(program_, *f->function, f->variables).run(*f->body);
    return call(program_, *f->function, std::move(positional));
  }

  Object item(const Object& container, const Tree& t) {
    const Object index = value(t.children[1]);
    if (container.is(Type::Tensor)) return definitions::index(container.tensor, index);
    if (container.is_sequence() && index.is_integer()) {
      const auto count = static_cast<int64_t>(container.items().size());
      const int64_t at = index.integer < 0 ? index.integer + count : index.integer;
      FL_CHECK_KIND(at >= 0 && at < count, Index, "list index out of range", where(t));
      return container.items()[static_cast<size_t>(at)];
    }
    if (as<Instance>(container)) return submodule(container, index);
    if (index.is(Type::Slice)) {
      const Objects& ends = index.items();
      return call_operator(*find_callee("aten", "slice"),
                           {container, ends[0], ends[1], ends[2].is_none() ? Object(1) : ends[2]}, {});
    }
    return call_operator(*find_callee("aten", "__getitem__"), {container, index}, {});
  }

  // A module of a list or dict of modules.
  static Object submodule(const Object& container, const Object& index) {
    if (index.is(Type::String)) return get_attribute(container, index.text());
    const Instance& instance = *as<Instance>(container);
    Objects modules;
    for (const Object& value : instance.values)
      if (as<Instance>(value)) modules.push_back(value);
    const auto count = static_cast<int64_t>(modules.size());
    const int64_t at = index.is_integer() ? index.integer + (index.integer < 0 ? count : 0) : -1;
    FL_CHECK_KIND(at >= 0 && at < count, Index, "[jit] expected the index of one of ", count,
                  " modules, got ", to_text(index));
    return modules[static_cast<size_t>(at)];
  }

  Object dict(const Tree& t) {
    Object dict = Object::of(Type::Dict, {});
    for (size_t i = 0; i + 1 < t.children.size(); i += 2) {
      const Object key = value(t.children[i]);
      definitions::set_item(dict, key, value(t.children[i + 1]));
    }
    return dict;
  }

  // Types matter where a tensor stands for a number.
  static Object annotated(const Tree& type, Object item) {
    if (!item.is(Type::Tensor) || type.op != Op::Path) return item;
    const char* cast = type.text == "int"       ? "Int"
                       : type.text == "float"   ? "Float"
                       : type.text == "complex" ? "Complex"
                       : type.text == "number"  ? "item"
                                                : nullptr;
    return cast ? call_operator(*find_callee("aten", cast), {item}, {}) : item;
  }

  // A call on another thread, or one that runs when it is waited for.
  Object begin(const Tree& t) {
    const Object callable = value(t.children[0]);
    Objects positional = arguments(t, 1);
    const auto* f = as<FunctionValue>(callable);
    FL_CHECK(f != nullptr, "[jit] expected a function to call later, got ", type_name(callable), where(t));
    const auto work = [program = program_, callable, f, positional = std::move(positional),
                       grad = thread_state().grad_mode]() mutable {
      thread_state().grad_mode = grad;
      if (f->body) return Frame(program, *f->function, f->variables).run(*f->body);
      return call(program, *f->function, std::move(positional));
    };
    auto* future = new Future;
    Object future_object = foreign(future);
    if (t.op == Op::Awaitable) {
      future->value = std::async(std::launch::deferred, work).share();
      return future_object;
    }
    auto task = std::make_shared<std::packaged_task<Object()>>(work);
    future->value = task->get_future().share();
    if (live_threads.fetch_add(1) >= kMostThreads) {
      live_threads.fetch_sub(1);
      (*task)();
      return future_object;
    }
    std::thread([task] {
      (*task)();
      live_threads.fetch_sub(1);
    }).detach();
    return future_object;
  }

  std::string where(const Tree& t) const {
    return message(" (", function_.name, ", line ", t.line, " of ", function_.file, ")");
  }

  const std::shared_ptr<Program>& program_;
  const Function& function_;
  Objects variables_;
  Object result_;
};

Object default_of(const Tree& t) {
  switch (t.op) {
    case Op::Constant:
      return t.constant;
    case Op::Annotate:
    case Op::Cast:
      return default_of(t.children[1]);
    case Op::List:
    case Op::Tuple: {
      Objects items;
      for (const Tree& child : t.children) items.push_back(default_of(child));
      return t.op == Op::List ? Object::list(std::move(items)) : Object::tuple(std::move(items));
    }
    case Op::Dict:
      if (t.children.empty()) return Object::of(Type::Dict, {});
      [[fallthrough]];
    default:
      if (t.op == Op::Operator && t.callee && t.text == "torch.device" && t.children.size() == 1)
        return call_operator(*t.callee, {default_of(t.children[0])}, {});
      fail("[jit] expected a constant as the default of an argument");
  }
}

// Values as parameters hold them: integers become floats where those are declared.
Object as_declared(const Parameter& parameter, Object item) {
  if (parameter.type.op == Op::Path && parameter.type.text == "float" && item.is(Type::Int))
    return Object(static_cast<double>(item.integer));
  return item;
}

}  // namespace

Object call(const std::shared_ptr<Program>& program, const Function& function, Objects positional,
            const Keywords& keywords) {
  const StackCheck check;
  const size_t count = function.parameters.size();
  FL_CHECK_KIND(positional.size() <= count, Type, "[", function.name, "] expected at most ", count,
                " arguments, got ", positional.size());
  Objects variables(static_cast<size_t>(function.slots));
  std::vector<bool> used(keywords.size());
  for (size_t i = 0; i < count; ++i) {
    const Parameter& parameter = function.parameters[i];
    if (i < positional.size()) {
      variables[i] = as_declared(parameter, std::move(positional[i]));
      continue;
    }
    size_t k = 0;
    while (k < keywords.size() && keywords[k].first != parameter.name) ++k;
    FL_CHECK_KIND(k < keywords.size() || parameter.has_default, Type, "[", function.name,
                  "] expected a value for '", parameter.name, "', got none");
    if (k < keywords.size()) used[k] = true;
    variables[i] = k < keywords.size() ? as_declared(parameter, keywords[k].second)
                                       : default_of(parameter.default_value);
  }
  for (size_t k = 0; k < keywords.size(); ++k)
    FL_CHECK_KIND(used[k], Type, "[", function.name, "] expected one of its arguments, got '",
                  keywords[k].first, "'");
  return Frame(program, function, std::move(variables)).run(function.body);
}

Object call_method(const Object& owner, std::string_view name, Objects positional, const Keywords& keywords) {
  const auto* instance = as<Instance>(owner);
  FL_CHECK(instance != nullptr, "[jit] expected an object with methods, got ", type_name(owner));
  const Function* function = instance->type.method(name);
  FL_CHECK(function != nullptr, "[jit] expected a method of ", instance->type.name, ", got ", name);
  positional.insert(positional.begin(), owner);
  return call(instance->program, *function, std::move(positional), keywords);
}

Object wait(const Object& o) {
  const auto* future = as<Future>(o);
  return future ? future->value.get() : o;
}

}  // namespace fl::script
