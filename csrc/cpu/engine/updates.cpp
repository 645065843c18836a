// Runs an update record's loop over lists of tensors: all tensors form one sequence of elements that is
// divided among the threads, so that two hundred small parameters cost one parallel region.
#include "ops/updates.h"

#include <algorithm>

#include "core/parallel.h"
#include "cpu/engine/cast.h"

namespace fl {
namespace {

constexpr int64_t kStage = 512;  // elements converted at a time
constexpr int64_t kCost = 4;     // of one element, in simple operations: divisions, roots, many streams

void run_staged(const UpdateDef& def, const UpdateJob& job, UpdateLoop loop, const double* values,
                int64_t begin, int64_t end) {
  alignas(64) char stage[kUpdateLists][kStage * sizeof(double)];
  const DType compute = job.wide ? DType::Double : DType::Float;
  const int64_t width = size_of(compute);
  for (int64_t at = begin; at < end; at += kStage) {
    const int64_t n = std::min(kStage, end - at);
    void* a[kUpdateLists];
    for (int k = 0; k < def.lists; ++k) {
      const int64_t size = size_of(job.dtype[k]);
      char* data = job.data[k] + at * size;
      a[k] = job.dtype[k] == compute ? data : stage[k];
      if (job.dtype[k] != compute) cast_fn(job.dtype[k], compute)(data, size, stage[k], width, n);
    }
    loop(a, n, values);
    for (int k = 0; k < def.lists; ++k) {
      if (job.dtype[k] == compute || !(def.written >> k & 1)) continue;
      const int64_t size = size_of(job.dtype[k]);
      cast_fn(compute, job.dtype[k])(stage[k], width, job.data[k] + at * size, size, n);
    }
  }
}

// Elements [begin, end) of one job.
void run_piece(const UpdateDef& def, const UpdateJob& job, const double* values, int64_t begin, int64_t end) {
  const UpdateLoop loop = job.wide ? def.loops->twice : def.loops->single;
  if (!job.direct) return run_staged(def, job, loop, values, begin, end);
  void* a[kUpdateLists];
  for (int k = 0; k < def.lists; ++k)
    a[k] = job.data[k] + begin * (job.wide ? sizeof(double) : sizeof(float));
  loop(a, end - begin, values);
}

void run_update(const UpdateCall& call) {
  const UpdateJob *jobs = call.jobs, *jobs_end = jobs + call.length;
  parallel_for(call.total, kGrain / kCost, [&](int64_t begin, int64_t end) {
    const auto ends_before = [](const UpdateJob& job, int64_t at) { return job.end <= at; };
    const UpdateJob* job = std::lower_bound(jobs, jobs_end, begin, ends_before);
    for (; job != jobs_end && begin < end; ++job) {
      const int64_t start = job->end - job->numel, stop = std::min(end, job->end);
      if (stop > begin) run_piece(call.def, *job, call.table + job->values, begin - start, stop - start);
      begin = std::max(begin, stop);
    }
  });
}
FL_ATTACH(update, CPU, run_update);

}  // namespace
}  // namespace fl
