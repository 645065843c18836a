#include "python/program_lines.h"
// Python.h must come first.

#include <map>
#include <string>
#include <unordered_map>

#include "python/library.h"

#define Py_BUILD_CORE
#include <internal/pycore_frame.h>
#undef Py_BUILD_CORE

namespace fl::py {
namespace {

// Frames are read where they lie: an object for each one would cost more than all the rest.
using Frame = _PyInterpreterFrame;

#if PY_VERSION_HEX >= 0x030D0000
Frame* current_frame() {
  return PyThreadState_Get()->current_frame;
}
PyObject* code_of(Frame* f) {
  return f->f_executable;
}
#else
Frame* current_frame() {
  return PyThreadState_Get()->cframe->current_frame;
}
PyObject* code_of(Frame* f) {
  return reinterpret_cast<PyObject*>(f->f_code);
}
#endif

// An instruction of a code object; what a table holds of code objects stays alive.
struct Place {
  PyObject* code;
  int instruction;
  bool operator<(const Place& o) const {
    return code != o.code ? code < o.code : instruction < o.instruction;
  }
};

// Answers that were given before, in front of the tables.
constexpr size_t kRecent = 256;
struct RecentCode {
  PyObject* code;
  bool inside;
};
struct RecentPlace {
  Place place;
  int number;
};
size_t recent_at(PyObject* code, int instruction) {
  return (reinterpret_cast<uintptr_t>(code) / 64 + static_cast<size_t>(instruction) * 31) % kRecent;
}

struct Lines {
  std::map<Place, int> numbers;
  std::vector<Place> all;
  std::unordered_map<PyObject*, bool> own;  // code of this package
  RecentCode recent_codes[kRecent] = {};
  RecentPlace recent_places[kRecent] = {};
};
Lines& lines() {
  static auto* l = new Lines;
  return *l;
}

bool is_in_package(PyObject* code) {
  static const std::string package = [] {
    Object module = own(PyImport_ImportModule("flambeau"));
    Object file = own(PyObject_GetAttrString(module.get(), "__file__"));
    const std::string path = PyUnicode_AsUTF8(file.get());
    return path.substr(0, path.rfind('/') + 1);
  }();
  const auto at = lines().own.find(code);
  if (at != lines().own.end()) return at->second;
  Object file = own(PyObject_GetAttrString(code, "co_filename"));
  const char* name = PyUnicode_AsUTF8(file.get());
  const bool inside = name && std::string(name).compare(0, package.size(), package) == 0;
  Py_INCREF(code);  // its address stays its own
  return lines().own[code] = inside;
}

bool is_own_code(PyObject* code) {
  RecentCode& recent = lines().recent_codes[recent_at(code, 0)];
  if (recent.code != code) recent = {code, is_in_package(code)};
  return recent.inside;
}

int number_of(const Place& place) {
  RecentPlace& recent = lines().recent_places[recent_at(place.code, place.instruction)];
  if (recent.place.code != place.code || recent.place.instruction != place.instruction) {
    const auto entered = lines().numbers.emplace(place, static_cast<int>(lines().all.size()));
    if (entered.second) {
      Py_INCREF(place.code);
      lines().all.push_back(place);
    }
    recent = {place, entered.first->second};
  }
  return recent.number;
}

}  // namespace

int line_of_program() {
  if (PyGILState_GetThisThreadState() == nullptr) return -1;  // not a thread of the program
  const WithGIL gil;                                          // backward runs without the lock
  for (Frame* f = current_frame(); f; f = f->previous)
    if (!_PyFrame_IsIncomplete(f) && !is_own_code(code_of(f)))
      return number_of({code_of(f), static_cast<int>(_PyInterpreterFrame_LASTI(f) * sizeof(_Py_CODEUNIT))});
  return -1;
}

PyObject* line_object(int number) {
  if (number < 0) Py_RETURN_NONE;
  const Place& place = lines().all[number];
  Object file = own(PyObject_GetAttrString(place.code, "co_filename"));
  const int line = PyCode_Addr2Line(reinterpret_cast<PyCodeObject*>(place.code), place.instruction);
  return check(Py_BuildValue("(Oi)", file.get(), line));
}

}  // namespace fl::py
