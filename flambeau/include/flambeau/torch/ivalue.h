// c10::IValue: a value of TorchScript, a counted handle of the C interface.
#pragma once

#include <flambeau/torch/functions.h>

#include <map>
#include <tuple>

namespace c10 {

template <class T>
using intrusive_ptr = std::shared_ptr<T>;

class IValue;
namespace ivalue {
class Tuple;
}

// Lists and dicts are copies of what a program holds.
template <class T>
class List {
 public:
  List() = default;
  List(std::initializer_list<T> items) : items_(items) {}
  explicit List(std::vector<T> items) : items_(std::move(items)) {}
  size_t size() const { return items_.size(); }
  bool empty() const { return items_.empty(); }
  const T& get(size_t i) const { return items_.at(i); }
  const T& operator[](size_t i) const { return items_.at(i); }
  void push_back(T item) { items_.push_back(std::move(item)); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  const std::vector<T>& vec() const { return items_; }

 private:
  std::vector<T> items_;
};

template <class K, class V>
class Dict {
 public:
  struct Entry {
    K first;
    V second;
    const K& key() const { return first; }
    const V& value() const { return second; }
  };

  size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  void insert(K key, V value) {
    for (Entry& entry : entries_)
      if (entry.first == key) {
        entry.second = std::move(value);
        return;
      }
    entries_.push_back({std::move(key), std::move(value)});
  }
  template <class Q>
  auto find(const Q& key) const {
    auto at = entries_.begin();
    while (at != entries_.end() && !(at->first == key)) ++at;
    return at;
  }
  template <class Q>
  bool contains(const Q& key) const {
    return find(key) != entries_.end();
  }
  template <class Q>
  const V& at(const Q& key) const {
    const auto found = find(key);
    if (found == entries_.end()) throw Error("[dict] expected a key of the dict, got another one");
    return found->second;
  }
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }

 private:
  std::vector<Entry> entries_;
};

class IValue {
 public:
  IValue() : IValue(fl_value{}) {}
  IValue(std::nullopt_t) : IValue() {}
  IValue(const at::Tensor& t)
      : IValue(with(t.defined() ? FL_VALUE_TENSOR : FL_NONE, &fl_value::as, t.handle())) {}
  IValue(bool v) : IValue(number(FL_VALUE_BOOL, v)) {}
  IValue(int v) : IValue(number(FL_VALUE_INT, v)) {}
  IValue(int64_t v) : IValue(number(FL_VALUE_INT, v)) {}
  IValue(double v) : IValue(real(v)) {}
  IValue(const char* v) : IValue(std::string(v)) {}
  IValue(const std::string& v) : IValue(text(FL_VALUE_STRING, v.c_str())) {}
  IValue(const Device& d) : IValue(text(FL_VALUE_DEVICE, d.str().c_str())) {}
  IValue(const Scalar& s)
      : IValue(s.isBoolean()         ? number(FL_VALUE_BOOL, s.toBool())
               : s.isIntegral(false) ? number(FL_VALUE_INT, s.toLong())
                                     : real(s.toDouble())) {}
  IValue(const std::vector<int64_t>& v) : IValue(items(FL_OBJECT_LIST, v)) {}
  IValue(const std::vector<double>& v) : IValue(items(FL_OBJECT_LIST, v)) {}
  IValue(const std::vector<bool>& v)
      : IValue(items(FL_OBJECT_LIST, std::vector<IValue>(v.begin(), v.end()))) {}
  IValue(const std::vector<std::string>& v) : IValue(items(FL_OBJECT_LIST, v)) {}
  IValue(const std::vector<at::Tensor>& v) : IValue(items(FL_OBJECT_LIST, v)) {}
  IValue(const std::vector<IValue>& v) : IValue(items(FL_OBJECT_LIST, v)) {}
  template <class T>
  IValue(const List<T>& v) : IValue(items(FL_OBJECT_LIST, v.vec())) {}
  template <class K, class V>
  IValue(const Dict<K, V>& v) : IValue(pairs(v)) {}
  template <class K, class V>
  IValue(const std::map<K, V>& v) : IValue(pairs(v)) {}
  template <class... T>
  IValue(const std::tuple<T...>& v)
      : IValue(std::apply(
            [](const auto&... part) { return items(FL_OBJECT_TUPLE, std::vector<IValue>{part...}); }, v)) {}
  template <class T>
  IValue(const std::optional<T>& v) : IValue(v ? IValue(*v) : IValue()) {}
  IValue(const intrusive_ptr<ivalue::Tuple>& tuple);

  IValue(const IValue& o) : handle_(fl_object_retain(o.handle_)), tuple_(o.tuple_) {}
  IValue(IValue&& o) noexcept : handle_(std::exchange(o.handle_, nullptr)), tuple_(std::move(o.tuple_)) {}
  IValue& operator=(IValue o) noexcept {
    std::swap(handle_, o.handle_);
    std::swap(tuple_, o.tuple_);
    return *this;
  }
  ~IValue() { fl_object_release(handle_); }

  static IValue adopt(fl_object* handle) {
    IValue made(Adopted{});
    made.handle_ = handle;
    return made;
  }
  fl_object* handle() const { return handle_; }

  // ---------------------------------------------------------------- what it is

  bool isNone() const { return is_plain(FL_NONE); }
  bool isTensor() const { return is_plain(FL_VALUE_TENSOR); }
  bool isBool() const { return is_plain(FL_VALUE_BOOL); }
  bool isInt() const { return is_plain(FL_VALUE_INT); }
  bool isDouble() const { return is_plain(FL_VALUE_FLOAT); }
  bool isComplexDouble() const { return is_plain(FL_VALUE_COMPLEX); }
  bool isScalar() const { return isInt() || isDouble() || isBool() || isComplexDouble(); }
  bool isString() const { return is_plain(FL_VALUE_STRING); }
  bool isList() const { return kind() == FL_OBJECT_LIST; }
  bool isTuple() const { return kind() == FL_OBJECT_TUPLE; }
  bool isGenericDict() const { return kind() == FL_OBJECT_DICT; }
  bool isModule() const { return kind() == FL_OBJECT_MODULE; }
  bool isObject() const { return kind() == FL_OBJECT_MODULE || kind() == FL_OBJECT_CLASS; }
  bool isEnum() const { return kind() == FL_OBJECT_ENUM; }
  bool isTensorList() const { return all_items(&IValue::isTensor); }
  bool isIntList() const { return all_items(&IValue::isInt); }
  bool isDoubleList() const { return all_items(&IValue::isDouble); }
  bool isBoolList() const { return all_items(&IValue::isBool); }
  std::string tagKind() const {
    static const char* const plain[] = {"None",          "Tensor", "Bool", "Int",   "Double",
                                        "ComplexDouble", "String", "Int",  "Device"};
    static const char* const others[] = {"",       "GenericList", "Tuple", "GenericDict",
                                         "Object", "Object",      "Enum",  "Other"};
    if (kind() != FL_OBJECT_PLAIN) return others[kind()];
    const Plain value(*this);
    return static_cast<size_t>(value->kind) < std::size(plain) ? plain[value->kind] : "Other";
  }

  // ---------------------------------------------------------------- its content

  at::Tensor toTensor() const {
    const Plain value(*this, FL_VALUE_TENSOR, "Tensor");
    return at::Tensor::adopt(fl_tensor_retain(value->as.tensor));
  }
  int64_t toInt() const { return Plain(*this, FL_VALUE_INT, "Int")->as.integer; }
  double toDouble() const { return Plain(*this, FL_VALUE_FLOAT, "Double")->as.number; }
  bool toBool() const { return Plain(*this, FL_VALUE_BOOL, "Bool")->as.integer != 0; }
  Scalar toScalar() const {
    if (isInt()) return Scalar(toInt());
    return isBool() ? Scalar(toBool()) : Scalar(toDouble());
  }
  std::string toStringRef() const {
    const Plain value(*this, FL_VALUE_STRING, "String");
    return std::string(value->as.string, value->length);
  }
  std::string toStringView() const { return toStringRef(); }
  List<IValue> toList() const {
    expect(isList(), "List");
    return List<IValue>(elements());
  }
  std::vector<int64_t> toIntVector() const { return vector<int64_t>(&IValue::toInt); }
  std::vector<double> toDoubleVector() const { return vector<double>(&IValue::toDouble); }
  std::vector<at::Tensor> toTensorVector() const { return vector<at::Tensor>(&IValue::toTensor); }
  List<at::Tensor> toTensorList() const { return List<at::Tensor>(toTensorVector()); }
  List<int64_t> toIntList() const { return List<int64_t>(toIntVector()); }
  List<double> toDoubleList() const { return List<double>(toDoubleVector()); }
  intrusive_ptr<ivalue::Tuple> toTuple() const;
  const ivalue::Tuple& toTupleRef() const { return *toTuple(); }
  Dict<IValue, IValue> toGenericDict() const {
    expect(isGenericDict(), "Dict");
    Dict<IValue, IValue> dict;
    const std::vector<IValue> all = elements();
    for (size_t i = 0; i + 1 < all.size(); i += 2) dict.insert(all[i], all[i + 1]);
    return dict;
  }
  // Items of lists and tuples; keys and values of dicts in turn.
  std::vector<IValue> elements() const {
    std::vector<IValue> all;
    for (size_t i = 0; i < fl_object_length(handle_); ++i) {
      fl_object* item = nullptr;
      check(fl_object_item(handle_, i, &item));
      all.push_back(adopt(item));
    }
    return all;
  }
  IValue attr(const std::string& name) const {
    fl_object* value = nullptr;
    check(fl_object_attribute(handle_, name.c_str(), &value));
    return adopt(value);
  }
  template <class T>
  T to() const {
    if constexpr (std::is_same_v<T, at::Tensor>)
      return toTensor();
    else if constexpr (std::is_same_v<T, bool>)
      return toBool();
    else if constexpr (std::is_integral_v<T>)
      return static_cast<T>(toInt());
    else if constexpr (std::is_floating_point_v<T>)
      return static_cast<T>(toDouble());
    else if constexpr (std::is_same_v<T, std::string>)
      return toStringRef();
    else
      return T(*this);
  }

  bool operator==(const IValue& o) const {
    if (isString() || o.isString()) return isString() && o.isString() && toStringRef() == o.toStringRef();
    if (isScalar() && o.isScalar()) return as_number() == o.as_number();
    return (isNone() && o.isNone()) || handle_ == o.handle_;
  }

 private:
  struct Adopted {};
  explicit IValue(Adopted) {}
  explicit IValue(const fl_value& value) { check(fl_object_from_value(&value, &handle_)); }

  // The value of a plain object, released at the end.
  class Plain {
   public:
    explicit Plain(const IValue& of) { check(fl_object_value(of.handle_, &value_)); }
    Plain(const IValue& of, fl_kind wanted, const char* name) : Plain(of) {
      if (value_.kind == wanted) return;
      fl_values_clear(&value_, 1);
      of.expect(false, name);
    }
    Plain(const Plain&) = delete;
    ~Plain() { fl_values_clear(&value_, 1); }
    const fl_value* operator->() const { return &value_; }

   private:
    fl_value value_{};
  };

  fl_object_kind kind() const { return fl_object_kind_of(handle_); }
  bool is_plain(fl_kind wanted) const { return kind() == FL_OBJECT_PLAIN && Plain(*this)->kind == wanted; }
  bool all_items(bool (IValue::*is)() const) const {
    if (!isList()) return false;
    for (const IValue& item : elements())
      if (!(item.*is)()) return false;
    return true;
  }
  template <class T>
  std::vector<T> vector(T (IValue::*convert)() const) const {
    expect(isList(), "List");
    std::vector<T> all;
    for (const IValue& item : elements()) all.push_back((item.*convert)());
    return all;
  }
  double as_number() const {
    const Plain value(*this);
    return value->kind == FL_VALUE_FLOAT ? value->as.number : static_cast<double>(value->as.integer);
  }
  void expect(bool holds, const char* wanted) const {
    if (!holds) throw Error("[IValue] expected " + std::string(wanted) + ", got " + tagKind());
  }

  template <class M>
  static fl_value with(fl_kind kind, M, fl_tensor* tensor) {
    fl_value v{};
    v.kind = kind;
    v.as.tensor = tensor;
    return v;
  }
  static fl_value number(fl_kind kind, int64_t integer) {
    fl_value v{};
    v.kind = kind;
    v.as.integer = integer;
    return v;
  }
  static fl_value real(double value) {
    fl_value v{};
    v.kind = FL_VALUE_FLOAT;
    v.as.number = value;
    return v;
  }
  static fl_value text(fl_kind kind, const char* value) {
    fl_value v{};
    v.kind = kind;
    v.as.string = value;
    return v;
  }
  static IValue from_items(fl_object_kind kind, const std::vector<IValue>& all) {
    std::vector<fl_object*> handles;
    for (const IValue& one : all) handles.push_back(one.handle_);
    fl_object* made = nullptr;
    check(fl_object_from_items(kind, handles.data(), handles.size(), &made));
    return adopt(made);
  }
  template <class T>
  static IValue items(fl_object_kind kind, const std::vector<T>& all) {
    if constexpr (std::is_same_v<T, IValue>)
      return from_items(kind, all);
    else
      return from_items(kind, std::vector<IValue>(all.begin(), all.end()));
  }
  template <class Map>
  static IValue pairs(const Map& map) {
    std::vector<IValue> all;
    for (const auto& entry : map) {
      all.emplace_back(entry.first);
      all.emplace_back(entry.second);
    }
    return from_items(FL_OBJECT_DICT, all);
  }

  friend class ivalue::Tuple;
  fl_object* handle_ = nullptr;
  mutable intrusive_ptr<ivalue::Tuple> tuple_;  // lives as long as the value, as programs rely on
};

namespace ivalue {

class Tuple {
 public:
  explicit Tuple(std::vector<IValue> elements) : elements_(std::move(elements)) {}
  static intrusive_ptr<Tuple> create(std::vector<IValue> elements) {
    return std::make_shared<Tuple>(std::move(elements));
  }
  template <class... A>
  static intrusive_ptr<Tuple> create(A&&... parts) {
    return std::make_shared<Tuple>(std::vector<IValue>{IValue(std::forward<A>(parts))...});
  }
  const std::vector<IValue>& elements() const { return elements_; }
  size_t size() const { return elements_.size(); }

 private:
  friend class c10::IValue;
  IValue value() const { return IValue::from_items(FL_OBJECT_TUPLE, elements_); }
  std::vector<IValue> elements_;
};

}  // namespace ivalue

inline IValue::IValue(const intrusive_ptr<ivalue::Tuple>& tuple) : IValue(tuple->value()) {}
inline intrusive_ptr<ivalue::Tuple> IValue::toTuple() const {
  expect(isTuple(), "Tuple");
  if (!tuple_) tuple_ = std::make_shared<ivalue::Tuple>(elements());
  return tuple_;
}

inline std::ostream& operator<<(std::ostream& out, const IValue& v) {
  if (v.isTensor()) return out << v.toTensor();
  if (v.isString()) return out << v.toStringRef();
  if (v.isBool()) return out << (v.toBool() ? "True" : "False");
  if (v.isInt()) return out << v.toInt();
  if (v.isDouble()) return out << v.toDouble();
  if (v.isNone()) return out << "None";
  return out << "<" << v.tagKind() << ">";
}

namespace impl {
using GenericList = List<IValue>;
using GenericDict = Dict<IValue, IValue>;
}  // namespace impl

}  // namespace c10

namespace at {
using c10::IValue;
}
namespace torch {
using c10::Dict;
using c10::IValue;
using c10::List;
}  // namespace torch
