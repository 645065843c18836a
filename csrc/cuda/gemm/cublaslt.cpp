// Opening cuBLASLt and asking it how to compute a product.
#include "cuda/gemm/cublaslt.h"

#include <mutex>

namespace fl::cuda::lt {

Lt& Lt::get() {
  static Lt lt = [] {
    Lt l{};
    static const char* const names[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so", nullptr};
    Library library(names);
    library.find(l.create, "cublasLtCreate");
    library.find(l.desc_create, "cublasLtMatmulDescCreate");
    library.find(l.desc_set, "cublasLtMatmulDescSetAttribute");
    library.find(l.layout_create, "cublasLtMatrixLayoutCreate");
    library.find(l.layout_set, "cublasLtMatrixLayoutSetAttribute");
    library.find(l.preference_create, "cublasLtMatmulPreferenceCreate");
    library.find(l.preference_set, "cublasLtMatmulPreferenceSetAttribute");
    library.find(l.preference_destroy, "cublasLtMatmulPreferenceDestroy");
    library.find(l.heuristic, "cublasLtMatmulAlgoGetHeuristic");
    library.find(l.matmul, "cublasLtMatmul");
    l.found = library.complete();
    return l;
  }();
  return lt;
}

Handle Lt::handle(int device) {
  static std::mutex mutex;
  std::lock_guard<std::mutex> lock(mutex);
  if (!handles[device]) check_lt(create(&handles[device]), "cublasLtCreate");
  return handles[device];
}

bool choose(Lt& lt, Handle handle, Desc desc, Layout_ a, Layout_ b, Layout_ c, Layout_ d,
            const Alignments& aligned, Algorithm& algorithm, size_t& workspace) {
  Preference preference;
  check_lt(lt.preference_create(&preference), "cublasLtMatmulPreferenceCreate");
  const uint64_t most = kWorkspace;
  lt.preference_set(preference, kMaxWorkspace, &most, 8);
  const std::pair<int, uint32_t> each[] = {
      {kAlignA, aligned.a}, {kAlignB, aligned.b}, {kAlignC, aligned.c}, {kAlignD, aligned.d}};
  for (const auto& [attribute, bytes] : each) lt.preference_set(preference, attribute, &bytes, 4);
  Heuristic best;
  int count = 0;
  const int status = lt.heuristic(handle, desc, a, b, c, d, preference, 1, &best, &count);
  lt.preference_destroy(preference);
  if (status != 0 || count == 0) return false;
  algorithm = best.algorithm;
  workspace = best.workspace;
  return true;
}

}  // namespace fl::cuda::lt
