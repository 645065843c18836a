// Which memory node each worker of the pool belongs to, on machines that have several.
#pragma once

#include <string>
#include <vector>

namespace fl {

// The processors of each memory node that this process may use; nodes without any are left out.
using NodeProcessors = std::vector<std::vector<int>>;

// Reads the nodes from a folder laid out as /sys/devices/system/node; none where the system does not tell.
NodeProcessors read_nodes(const std::string& folder, const std::vector<int>& usable);

// The node of each thread of a region, thread 0 being the caller's. Threads with numbers beside each other
// work on memory beside each other, so that they fill one node after the other, the caller's first: pages
// that a thread is the first to write to lie with it, and few threads stay on one node. Threads beyond the
// processors begin again.
int node_of_thread(const NodeProcessors& nodes, int own_node, int thread);

// Lets this thread run on the processors of its node alone; nothing on machines of one node.
void settle_worker(int worker);

}  // namespace fl
