// Writes pickles of archives: what unpickler.cpp reads, and what PyTorch reads.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "runtime/archive_writer.h"
#include "script/program.h"

namespace fl::script {

// The name of a storage's class, such as torch.FloatStorage; null where archives have none for a dtype.
const char* storage_name(DType dtype);
// A type as source, of a declaration or of a value. Instances may have other names than their classes.
using NameOf = std::function<std::string(const Instance&)>;
std::string type_text(const Tree& type);
std::string type_text(const Object& value, const NameOf& name_of);

class Pickler {
 public:
  explicit Pickler(NameOf name_of) : name_of_(std::move(name_of)) {}

  // A value; `type` is what it was declared to be, or null.
  void value(const Object& o, const Tree* type = nullptr);
  // Adds the pickle, and the storages of its tensors in a folder of their own.
  void add_to(runtime::ArchiveWriter& archive, const std::string& name, const std::string& folder) const;

 private:
  class Inside;

  void number(const Object& o);
  void text(std::string_view value);
  void integer(int64_t value);
  void class_name(const std::string& qualified);
  void integers(IntSpan values);
  void tensor(const Tensor& t);
  void container(const Object& o, const Tree* type);
  void list(const Object& o, const Tree* type);
  void dict(const Object& o, const Tree* type);
  void tuple(const Object& o, const Tree* type);
  void instance(const Instance& o);
  bool recall(const void* identity);
  void remember(const void* identity);

  NameOf name_of_;
  std::string out_ = "\x80\x02";
  std::map<const void*, uint32_t> memo_;
  std::set<const void*> unfinished_;
  std::map<std::pair<const Storage*, DType>, size_t> keys_;
  std::vector<Tensor> storages_;  // whole, on the CPU
  std::vector<Tensor> alive_;     // what the memo has the addresses of
};

}  // namespace fl::script
