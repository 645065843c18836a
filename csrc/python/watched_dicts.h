// Whether the attribute dictionaries of objects were written to since they were added, however that was done:
// `module.__dict__["scale"] = 2` runs no method of the module that could count the change.
#pragma once

#include <vector>

#include "python/common.h"

namespace fl::py {

class WatchedDicts {
 public:
  void clear() { held_.clear(); }

  // The dictionary of an object that has one.
  void add(PyObject* object) {
    Object dict = own(PyObject_GenericGetDict(object, nullptr));
#if PY_VERSION_HEX >= 0x030C0000
    if (held_.empty()) writes_ = writes();
    check(PyDict_Watch(watcher(), dict.get()));
    held_.push_back({std::move(dict), 0});
#else
    const uint64_t version = version_of(dict.get());
    held_.push_back({std::move(dict), version});
#endif
  }

  bool unchanged() const {
#if PY_VERSION_HEX >= 0x030C0000
    return held_.empty() || writes_ == writes();
#else
    for (const Held& held : held_)
      if (version_of(held.dict.get()) != held.version) return false;
    return true;
#endif
  }

 private:
  struct Held {
    Object dict;
    uint64_t version;
  };

#if PY_VERSION_HEX >= 0x030C0000
  // One counter for all watched dictionaries.
  static uint64_t& writes() {
    static uint64_t count = 0;
    return count;
  }
  static int watcher() {
    static const int id = check(PyDict_AddWatcher([](PyDict_WatchEvent, PyObject*, PyObject*, PyObject*) {
      ++writes();
      return 0;
    }));
    return id;
  }
  uint64_t writes_ = 0;
#else
  static uint64_t version_of(PyObject* dict) { return reinterpret_cast<PyDictObject*>(dict)->ma_version_tag; }
#endif
  std::vector<Held> held_;
};

}  // namespace fl::py
