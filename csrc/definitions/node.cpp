#include "definitions/node.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <unordered_map>

namespace fl::definitions {
namespace {

size_t read_number(const char*& at) {
  size_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = static_cast<unsigned char>(*at++);
    value |= static_cast<size_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
}

const std::vector<std::string_view>& strings() {
  static const auto* const all = [] {
    auto* list = new std::vector<std::string_view>;
    for (const char *at = definition_strings, *end = at + definition_strings_size; at < end;) {
      const size_t length = read_number(at);
      list->emplace_back(at, length);
      at += length;
    }
    return list;
  }();
  return *all;
}

Node read_node(const char*& at) {
  Node node;
  node.kind = static_cast<Kind>(*at++);
  node.text = strings()[read_number(at)];
  node.children.resize(read_number(at));
  if (node.kind == Kind::Int) node.integer = std::strtoll(std::string(node.text).c_str(), nullptr, 10);
  if (node.kind == Kind::Float || node.kind == Kind::Imaginary)
    node.number = std::strtod(std::string(node.text).c_str(), nullptr);
  for (Node& child : node.children) child = read_node(at);
  return node;
}

}  // namespace

const Node* find_definition(std::string_view name) {
  static std::mutex mutex;
  static auto* const known = new std::unordered_map<std::string_view, std::unique_ptr<Node>>;
  const auto* const end = definition_entries + definition_count;
  const auto* const entry =
      std::lower_bound(definition_entries, end, name,
                       [](const DefinitionEntry& e, std::string_view wanted) { return e.name < wanted; });
  if (entry == end || entry->name != name) return nullptr;
  const std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<Node>& node = (*known)[entry->name];
  if (!node) {
    const char* at = definition_bytes + entry->offset;
    node = std::make_unique<Node>(read_node(at));
  }
  return node.get();
}

}  // namespace fl::definitions
