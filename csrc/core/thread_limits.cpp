// Affinity masks, control groups of both versions, OMP_NUM_THREADS.
#include "core/thread_limits.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace fl {
namespace {

int processors_of_mask() {
  for (int most = 1024; most <= 1 << 16;
       most *= 4) {  // machines may have more processors than cpu_set_t has bits
    cpu_set_t* mask = CPU_ALLOC(most);
    const size_t bytes = CPU_ALLOC_SIZE(most);
    const bool known = sched_getaffinity(0, bytes, mask) == 0;
    const int count = known ? CPU_COUNT_S(bytes, mask) : 0;
    CPU_FREE(mask);
    if (known) return std::max(1, count);
    if (errno != EINVAL) break;
  }
  return std::max(1u, std::thread::hardware_concurrency());
}

// Processors' worth of time that one control group grants, or 0 where it sets no limit.
double granted_by(const std::string& folder) {
  std::string quota;
  double period = 0;
  std::ifstream second(folder + "/cpu.max");
  if (second >> quota >> period) return quota == "max" || period <= 0 ? 0 : std::atof(quota.c_str()) / period;
  double microseconds = 0;
  std::ifstream first_quota(folder + "/cpu.cfs_quota_us"), first_period(folder + "/cpu.cfs_period_us");
  if (first_quota >> microseconds && first_period >> period && microseconds > 0 && period > 0)
    return microseconds / period;
  return 0;
}

// The least that the groups of this process grant, from its own up to the root.
double granted_by_groups() {
  double least = 0;
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool unified = controllers == ",,";
    if (!unified && controllers.find(",cpu,") == std::string::npos) continue;
    const std::string root = unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/cpu";
    for (std::string path = line.substr(second + 1);; path.resize(path.rfind('/'))) {
      const double granted = granted_by(root + (path == "/" ? "" : path));
      if (granted > 0 && (least == 0 || granted < least)) least = granted;
      if (path.rfind('/') == std::string::npos || path.empty()) break;
    }
  }
  return least;
}

}  // namespace

int usable_processors() {
  const int count = processors_of_mask();
  const double granted = granted_by_groups();
  return granted > 0 ? std::clamp(static_cast<int>(std::ceil(granted)), 1, count) : count;
}

int usable_threads() {
  if (const char* asked = std::getenv("OMP_NUM_THREADS")) {
    const long count = std::strtol(asked, nullptr, 10);  // of the outermost level, if there are several
    if (count > 0) return static_cast<int>(std::min(count, 1L << 20));
  }
  return usable_processors();
}

}  // namespace fl
