// Archives of TorchScript, written: modules that an archive held, with the code that they came with, and
// modules that were made of attributes, as LibTorch's archives hold tensors and modules.
#include "runtime/archive_writer.h"
#include "script/pickler.h"
#include "script/program.h"

namespace fl::script {
namespace {

constexpr const char* kMade = "__torch__.Module";
constexpr int64_t kPlainVersion = 3;  // of archives without code

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    if (c == '\n')
      result += "\\n";
    else
      result += c;
  }
  return result + '"';
}

bool is_identifier(const std::string& text) {
  bool good = !text.empty() && !(text[0] >= '0' && text[0] <= '9');
  for (const char c : text)
    good = good && (c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'));
  return good;
}

// Names for the classes of all modules below one: their own in a program that was loaded; numbered ones for
// modules that were made, which all have the same class name.
class Names {
 public:
  std::string operator()(const Instance& o) {
    if (!o.program->sources.empty()) {
      FL_CHECK(!loaded_ || loaded_ == o.program.get(),
               "[jit.save] expected scripted modules of one archive, got some of two");
      loaded_ = o.program.get();
      return o.type.name;
    }
    const auto [entry, fresh] = names_.try_emplace(&o);
    if (fresh) {
      const size_t before = names_.size() - 1;
      entry->second =
          before == 0 ? kMade : "__torch__.___torch_mangle_" + std::to_string(before - 1) + ".Module";
      made_.push_back(&o);
    }
    return entry->second;
  }

  void add_code(runtime::ArchiveWriter& archive) {
    // The classes of attributes are made while the list is walked.
    for (size_t i = 0; i < made_.size(); ++i) {
      const std::string name = (*this)(*made_[i]), path = name.substr(0, name.rfind('.'));
      FL_CHECK(!loaded_ || !loaded_->find_class(name),
               "[jit.save] expected a scripted module without the class ", name, ", got one that has it");
      std::string file = "code/" + path + ".py";
      for (size_t at = 5; at + 3 < file.size(); ++at)
        if (file[at] == '.') file[at] = '/';
      archive.add(file, code(*made_[i]));
    }
    for (const auto& [path, text] : loaded_ ? loaded_->sources : decltype(loaded_->sources){})
      archive.add(path, text);
  }
  const Program* loaded() const { return loaded_; }

 private:
  std::string code(const Instance& o) {
    std::string text = "class Module(Module):\n";
    const auto names = [&](const char* label, const std::vector<std::string>& all) {
      text += std::string("  ") + label + " = [";
      for (const std::string& name : all) text += quoted(name) + ", ";
      text += "]\n";
    };
    names("__parameters__", o.type.parameters);
    names("__buffers__", o.type.buffers);
    for (size_t i = 0; i < o.values.size(); ++i) {
      const std::string& name = o.type.attributes[i];
      const std::string type = type_text(o.values[i], std::ref(*this));
      text += is_identifier(name) ? "  " + name + " : " + type + "\n"
                                  : "  __annotations__[" + quoted(name) + "] = " + type + "\n";
    }
    return text;
  }

  const Program* loaded_ = nullptr;
  std::map<const Instance*, std::string> names_;
  std::vector<const Instance*> made_;
};

void finish(runtime::ArchiveWriter& archive, int64_t version) {
  archive.add("version", std::to_string(version) + "\n");
  archive.add("byteorder", "little");
  archive.finish();
}

}  // namespace

Object module_of(std::vector<Attribute> attributes) {
  definitions::install();
  auto program = std::make_shared<Program>();
  auto type = std::make_unique<Class>();
  type->name = kMade;
  type->kind = Class::Kind::Module;
  type->program = program.get();
  Objects values;
  for (Attribute& attribute : attributes) {
    FL_CHECK(type->position(attribute.name) < 0, "[jit] expected attributes with names of their own, got ",
             attribute.name, " twice");
    if (attribute.role != Attribute::Role::Plain)
      (attribute.role == Attribute::Role::Buffer ? type->buffers : type->parameters)
          .push_back(attribute.name);
    type->attributes.push_back(std::move(attribute.name));
    values.push_back(std::move(attribute.value));
  }
  const Object module = new_instance(program, *type);
  as<Instance>(module)->values = std::move(values);
  program->classes[kMade] = std::move(type);
  return module;
}

void save(const Object& module, const std::vector<std::pair<std::string, std::string>>& extra_files,
          const runtime::Sink& sink) {
  FL_CHECK_KIND(as<Instance>(module) != nullptr, Type, "[jit.save] expected a module, got ",
                type_name(module));
  Names names;
  Pickler data(std::ref(names)), constants(std::ref(names));
  data.value(module);
  const Program* program = names.loaded();
  constants.value(Object::tuple(program ? program->constants : Objects{}));
  runtime::ArchiveWriter archive(sink);
  for (const auto& [name, content] : extra_files) archive.add("extra/" + name, content);
  data.add_to(archive, "data.pkl", "data");
  names.add_code(archive);
  constants.add_to(archive, "constants.pkl", "constants");
  finish(archive, program ? program->version : kPlainVersion);
}

void save_value(const Object& value, const runtime::Sink& sink) {
  Pickler pickler([](const Instance& o) -> std::string {
    fail(ErrorKind::Type, "[pickle_save] expected a value without objects of classes, got ", o.type.name);
  });
  pickler.value(value);
  runtime::ArchiveWriter archive(sink);
  pickler.add_to(archive, "data.pkl", "data");
  finish(archive, kPlainVersion);
}

Object load_value(std::shared_ptr<const runtime::Bytes> bytes) {
  definitions::install();
  const runtime::Archive archive(std::move(bytes));
  return unpickle(archive, "data.pkl", "data", std::make_shared<Program>());
}

}  // namespace fl::script
