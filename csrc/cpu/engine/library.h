// Optional native libraries (OpenBLAS/LAPACK, oneDNN, ...) that are loaded with dlopen at first
// use instead of being linked, so the core builds and imports without them.
//
// Where a library named e.g. "openblas" is looked for, in order:
//   1. the environment variable FLAMBEAU_OPENBLAS_LIB; when set, nothing else is tried
//   2. the path given by the host through set_library_path("openblas", path)
//   3. folders of the environment around this library and of those the process was started in, for each
//   soname
//   4. the sonames the caller passes to open_library, by the loader
// All functions are thread safe. Libraries once opened stay open for the life of the process.
#pragma once

#include <initializer_list>
#include <string>

namespace fl::cpu {

// Tells where the library `name` lives. A null or empty path forgets the setting. Has no effect on
// a library that is already open; an earlier failure to open it is forgotten and tried again.
void set_library_path(const char* name, const char* path);

// Opens the library (once; the handle, or the failure, is cached by name) and returns its dlopen
// handle, or nullptr when no candidate could be opened: library_error then says why.
void* open_library(const char* name, std::initializer_list<const char*> sonames);

// A function of an open BLAS or LAPACK, which the wheel of OpenBLAS names with a prefix; nullptr when it has
// none.
void* find_blas_function(void* handle, const std::string& name);

// What was tried and how it failed, one "path: reason" per candidate; empty after a success.
std::string library_error(const char* name);

// The candidate that was opened (a path or a soname); empty when the library is not open.
std::string library_opened_from(const char* name);

}  // namespace fl::cpu
