// Memory nodes by sysfs, and affinity masks of workers.
#include "core/thread_places.h"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

namespace fl {
namespace {

// "0-3,8,10-11": the processors of a node as the kernel writes them.
std::vector<int> parse_list(const std::string& text) {
  std::vector<int> numbers;
  const char* at = text.c_str();
  while (*at >= '0' && *at <= '9') {
    char* end;
    const long first = std::strtol(at, &end, 10), last = *end == '-' ? std::strtol(end + 1, &end, 10) : first;
    for (long n = first; n <= last && last < 1 << 20; ++n) numbers.push_back(static_cast<int>(n));
    at = *end == ',' ? end + 1 : end;
  }
  return numbers;
}

std::vector<int> processors_of_mask() {
  std::vector<int> processors;
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof mask, &mask) != 0) return processors;
  for (int n = 0; n < CPU_SETSIZE; ++n)
    if (CPU_ISSET(n, &mask)) processors.push_back(n);
  return processors;
}

// The nodes of this machine, and which of them the process was on when its first worker began.
struct Machine {
  NodeProcessors nodes;
  int own_node = 0;

  Machine() {
    const std::vector<int> usable = processors_of_mask();
    nodes = read_nodes("/sys/devices/system/node", usable);
    const int here = sched_getcpu();
    for (size_t node = 0; node < nodes.size(); ++node)
      if (std::count(nodes[node].begin(), nodes[node].end(), here)) own_node = static_cast<int>(node);
  }
};

}  // namespace

NodeProcessors read_nodes(const std::string& folder, const std::vector<int>& usable) {
  NodeProcessors nodes;
  std::string line;
  if (!std::getline(std::ifstream(folder + "/online"), line)) return nodes;
  for (const int node : parse_list(line)) {
    std::string list;
    std::getline(std::ifstream(folder + "/node" + std::to_string(node) + "/cpulist"), list);
    std::vector<int> own;
    for (const int processor : parse_list(list))
      if (std::count(usable.begin(), usable.end(), processor)) own.push_back(processor);
    if (!own.empty()) nodes.push_back(std::move(own));
  }
  return nodes;
}

int node_of_thread(const NodeProcessors& nodes, int own_node, int thread) {
  const int count = static_cast<int>(nodes.size());
  int all = 0;
  for (const std::vector<int>& node : nodes) all += static_cast<int>(node.size());
  if (all == 0) return 0;
  thread %= all;
  for (int step = 0; step < count; ++step) {
    const int node = (own_node + step) % count;
    const int size = static_cast<int>(nodes[node].size());
    if (thread < size) return node;
    thread -= size;
  }
  return own_node;
}

void settle_worker(int worker) {
  static const Machine machine;
  if (machine.nodes.size() < 2) return;
  cpu_set_t mask;
  CPU_ZERO(&mask);
  for (const int processor : machine.nodes[node_of_thread(machine.nodes, machine.own_node, worker + 1)])
    CPU_SET(processor, &mask);
  sched_setaffinity(0, sizeof mask, &mask);  // a thread that may not is one that runs anywhere, as before
}

}  // namespace fl
