// Where things lie in a package, below its first folder. flambeau/_inductor/package/writing.py has the same.
#pragma once

#include <string>

namespace fl::runtime {

constexpr const char* kPlanPath = "data/aotinductor/model/plan";
constexpr const char* kSignaturePath = "data/aotinductor/model/signature.json";
constexpr const char* kMetadataPath = "data/aotinductor/model/metadata.json";
constexpr const char* kWeightsPath = "data/weights/weights";

inline std::string kernels_path(const std::string& instruction_set) {
  return "data/aotinductor/model/kernels-" + instruction_set + ".so";
}

// The image of a kernel of an accelerator.
inline std::string image_path(const std::string& name) {
  return "data/aotinductor/model/images/" + name + ".cubin";
}

}  // namespace fl::runtime
