// Nodes read from a simulated machine, and where threads go on it. Argument: a folder like /sys/devices/system/node.
// Prints the nodes' processors and the node of each thread.
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "core/thread_places.h"

int main(int, char** arguments) {
  std::vector<int> usable(std::atoi(arguments[2]));
  std::iota(usable.begin(), usable.end(), std::atoi(arguments[3]));
  const fl::NodeProcessors nodes = fl::read_nodes(arguments[1], usable);
  for (const std::vector<int>& node : nodes) std::printf("%zu:%d ", node.size(), node.empty() ? -1 : node[0]);
  std::printf("\n");
  for (int thread = 0; thread < std::atoi(arguments[4]); ++thread)
    std::printf("%d", fl::node_of_thread(nodes, std::atoi(arguments[5]), thread));
  std::printf("\n");
}
