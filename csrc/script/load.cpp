// Archives of TorchScript: code, constants and the object they belong to.
#include <cstdlib>

#include "definitions/object.h"
#include "script/program.h"

namespace fl::script {
namespace {

const std::string kCode = "code/", kEnding = ".py";
constexpr int64_t kNewest = 10;

// __torch__/torch/nn/modules/linear.py -> __torch__.torch.nn.modules.linear
std::string dotted(std::string_view path) {
  std::string name(path.substr(kCode.size(), path.size() - kCode.size() - kEnding.size()));
  for (char& c : name)
    if (c == '/') c = '.';
  return name;
}

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

}  // namespace

Object load(std::shared_ptr<const runtime::Bytes> bytes) {
  definitions::install();
  const runtime::Archive archive(std::move(bytes));
  const runtime::Archive::Member* order = archive.find("byteorder");
  FL_CHECK(!order || std::string_view(order->data, order->size) == "little",
           "[jit.load] expected an archive of a little-endian machine, got another one");
  auto program = std::make_shared<Program>();
  const runtime::Archive::Member* version = archive.find("version");
  if (!version) version = archive.find(".data/version");
  FL_CHECK(version != nullptr, "[jit.load] expected an archive with a version, got one without");
  program->version = std::strtoll(std::string(version->data, version->size).c_str(), nullptr, 10);
  FL_CHECK(program->version >= 1 && program->version <= kNewest,
           "[jit.load] expected an archive of version 1 to ", kNewest, ", got ", program->version);
  bool any = false;
  for (const auto& [path, member] : archive.members()) {
    if (path.rfind(kCode, 0) != 0 || !ends_with(path, kEnding)) continue;
    archive.checked(path);
    parse_file({member.data, member.size}, dotted(path), *program);
    program->sources.emplace_back(path, std::string(member.data, member.size));
    any = true;
  }
  FL_CHECK(any, "[jit.load] expected an archive of TorchScript, got a zip file without code");
  if (archive.find("constants.pkl")) {
    // Constants may be objects whose classes have code of their own, which refers to no constants.
    const Object constants = unpickle(archive, "constants.pkl", "constants", program);
    FL_CHECK(constants.is_sequence(), "[jit.load] expected a tuple of constants, got ", type_name(constants));
    program->constants = constants.items();
  }
  program->link();
  Object module = unpickle(archive, "data.pkl", "data", program);
  FL_CHECK(as<Instance>(module) != nullptr, "[jit.load] expected a module, got ", type_name(module));
  return module;
}

bool extra_file(const std::shared_ptr<const runtime::Bytes>& bytes, const std::string& name,
                std::string& content) {
  const runtime::Archive archive(bytes);
  if (!archive.find("extra/" + name)) return false;
  const runtime::Archive::Member& member = archive.checked("extra/" + name);
  content.assign(member.data, member.size);
  return true;
}

}  // namespace fl::script
