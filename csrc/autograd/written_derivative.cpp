#include "autograd/written_derivative.h"

#include <cctype>
#include <cstring>
#include <string>

#include "dispatch/builtin.h"

namespace fl::autograd {
namespace {

int find_argument(const Operator& op, const std::string& name) {
  for (size_t a = 0; a < op.schema.args.size(); ++a)
    if (op.schema.args[a].name == name) return static_cast<int>(a);
  return -1;
}

// The argument that a name with a suffix is about: self_sizes is about self.
int find_with_suffix(const Operator& op, const std::string& name, const char* suffix) {
  const size_t k = std::strlen(suffix);
  if (name.size() <= k || name.compare(name.size() - k, k, suffix) != 0) return -1;
  return find_argument(op, name.substr(0, name.size() - k));
}

int find_result(const Operator& op, const std::string& name) {
  int at = name == "out" || name == "result" ? 0 : -1;
  for (size_t r = 0; r < op.schema.return_names.size(); ++r)
    if (op.schema.return_names[r] == name || "out" + std::to_string(r) == name) at = static_cast<int>(r);
  FL_CHECK(at >= 0, "[", op.schema.name, "] expected its derivative to name arguments or results, got '",
           name, "'");
  return at;
}

bool is_gradient(const Operator& op, const std::string& name) {
  const bool numbered =
      name[0] == 'g' && name.size() == 2 && std::isdigit(static_cast<unsigned char>(name[1]));
  return (name == "g" || numbered) && find_argument(op, name) < 0;
}

}  // namespace

bool WrittenDerivative::concerned(const OperatorNode& node, const std::vector<Tensor>& grads) const {
  bool any = node.op->schema.returns_list;
  for (const Source& source : sources)
    any |= source.kind == Source::Grad && source.index < static_cast<int>(grads.size()) &&
           grads[source.index].defined();
  return any;
}

void read_sources(const Operator& op, const BuiltinOperator& row, WrittenDerivative& written,
                  Derivative& derivative) {
  using S = WrittenDerivative::Source;
  static const std::pair<const char*, S::Kind> suffixes[] = {
      {"_sizes", S::Sizes}, {"_dtype", S::DTypeOf}, {"_window", S::Window}, {"_device", S::DeviceOf}};
  written.row = &row;
  int n_grads = 0;
  std::string rest = row.vjp_parameters;
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    const std::string name = rest.substr(0, comma);
    rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
    if (is_gradient(op, name)) {
      written.sources.push_back({S::Grad, n_grads++});
      continue;
    }
    if (name == "needs") {
      written.sources.push_back({S::Needs, 0});
      continue;
    }
    int at = find_argument(op, name);
    if (at >= 0) {
      written.sources.push_back({S::Arg, at});
      derivative.saves_args |= uint64_t(1) << at;
      continue;
    }
    for (const auto& [suffix, kind] : suffixes) {
      at = find_with_suffix(op, name, suffix);
      if (at < 0) continue;
      written.sources.push_back({kind, at});
      if (kind == S::Window) derivative.saves_args |= uint64_t(1) << at;
      break;
    }
    if (at >= 0) continue;
    at = find_result(op, name);
    written.sources.push_back({S::Result, at});
    derivative.saves_results |= 1u << at;
  }
}

}  // namespace fl::autograd
