// Finding, opening and remembering the optional native libraries; see library.h for the order in
// which places are tried.
#include "cpu/engine/library.h"

#include <dlfcn.h>
#include <glob.h>
#include <unistd.h>

#include <cctype>
#include <cstdlib>
#include <map>
#include <mutex>
#include <vector>

namespace fl::cpu {
namespace {

struct Entry {
  std::string host_path;    // from set_library_path
  std::string opened_from;  // the candidate that worked
  std::string error;        // every candidate that did not, with the loader's reason
  void* handle = nullptr;
  bool tried = false;
};

struct Registry {
  std::mutex mutex;
  std::map<std::string, Entry> entries;
};

// Never destroyed: wrappers may still look up symbols while static destructors run.
Registry& registry() {
  static Registry* instance = new Registry;
  return *instance;
}

std::string env_override(const std::string& name) {
  std::string variable = "FLAMBEAU_";
  for (char c : name) variable += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  const char* value = std::getenv((variable + "_LIB").c_str());
  return value ? value : "";
}

bool try_open(Entry& entry, const std::string& candidate) {
  entry.handle = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (entry.handle) {
    entry.opened_from = candidate;
    entry.error.clear();
    return true;
  }
  const char* reason = dlerror();
  if (!entry.error.empty()) entry.error += "; ";
  entry.error += candidate + ": " + (reason ? reason : "unknown loader error");
  return false;
}

// ---- where wheels put libraries, found without Python ----

std::string parent(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

// Environments that libraries may have been installed into: the one around this library, then those that the
// process was started in.
std::vector<std::string> prefixes() {
  std::vector<std::string> paths;
  Dl_info here{};
  if (dladdr(reinterpret_cast<void*>(&parent), &here) && here.dli_fname) {
    const std::string site = parent(parent(here.dli_fname));  // site-packages/flambeau/libflambeau.so
    paths.push_back(parent(parent(parent(site))));
  }
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    if (const char* prefix = std::getenv(variable)) paths.emplace_back(prefix);
  const char* path = std::getenv("PATH");
  std::string rest = path ? path : "";
  while (!rest.empty()) {
    const size_t colon = rest.find(':');
    const std::string folder = rest.substr(0, colon);
    if (folder.size() > 4 && folder.compare(folder.size() - 4, 4, "/bin") == 0)
      paths.push_back(parent(folder));
    rest = colon == std::string::npos ? "" : rest.substr(colon + 1);
  }
  return paths;
}

// Paths of a library in environments: beside others, or in a package's own folder.
std::vector<std::string> installed(const char* soname) {
  std::vector<std::string> paths;
  Dl_info here{};
  if (dladdr(reinterpret_cast<void*>(&parent), &here) && here.dli_fname) {
    const std::string folder = parent(here.dli_fname);
    paths.push_back(folder + "/" + soname);
    paths.push_back(parent(folder) + "/scipy_openblas32/lib/" + soname);
  }
  for (const std::string& prefix : prefixes()) {
    paths.push_back(prefix + "/lib/" + soname);
    glob_t matches{};
    const std::string pattern = prefix + "/lib/python3*/site-packages/scipy_openblas32/lib/" + soname;
    if (glob(pattern.c_str(), 0, nullptr, &matches) == 0)
      for (size_t i = 0; i < matches.gl_pathc; ++i) paths.emplace_back(matches.gl_pathv[i]);
    globfree(&matches);
  }
  return paths;
}

bool try_installed(Entry& entry, const char* soname) {
  for (const std::string& path : installed(soname))
    if (access(path.c_str(), R_OK) == 0 && try_open(entry, path)) return true;
  return false;
}

void try_candidates(Entry& entry, const std::string& name, std::initializer_list<const char*> sonames) {
  entry.error.clear();
  const std::string forced = env_override(name);
  if (!forced.empty()) {
    try_open(entry, forced);
    return;
  }
  if (!entry.host_path.empty() && try_open(entry, entry.host_path)) return;
  for (const char* soname : sonames)
    if (try_installed(entry, soname)) return;
  for (const char* soname : sonames)
    if (try_open(entry, soname)) return;
  if (entry.error.empty()) entry.error = "no path was given";
}

}  // namespace

void set_library_path(const char* name, const char* path) {
  Registry& reg = registry();
  std::lock_guard<std::mutex> lock(reg.mutex);
  Entry& entry = reg.entries[name];
  entry.host_path = path ? path : "";
  if (!entry.handle) entry.tried = false;
}

void* open_library(const char* name, std::initializer_list<const char*> sonames) {
  Registry& reg = registry();
  std::lock_guard<std::mutex> lock(reg.mutex);
  Entry& entry = reg.entries[name];
  if (!entry.tried) {
    entry.tried = true;
    try_candidates(entry, name, sonames);
  }
  return entry.handle;
}

void* find_blas_function(void* handle, const std::string& name) {
  void* function = dlsym(handle, ("scipy_" + name).c_str());
  return function ? function : dlsym(handle, name.c_str());
}

std::string library_error(const char* name) {
  Registry& reg = registry();
  std::lock_guard<std::mutex> lock(reg.mutex);
  return reg.entries[name].error;
}

std::string library_opened_from(const char* name) {
  Registry& reg = registry();
  std::lock_guard<std::mutex> lock(reg.mutex);
  return reg.entries[name].opened_from;
}

}  // namespace fl::cpu
