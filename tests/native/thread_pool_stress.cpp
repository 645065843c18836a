// Regions from several callers, nested ones, gangs that wait for each other, exceptions, and a changing number of
// threads, all at a time: for ThreadSanitizer, and for deadlocks. Exits with 0 when every piece ran exactly once.
#include <atomic>
#include <cstdio>
#include <stdexcept>
#include <thread>
#include <vector>

#include "core/parallel.h"

namespace {

std::atomic<int> wrong{0};

void expect(bool right, const char* what) {
  if (right) return;
  ++wrong;
  std::fprintf(stderr, "expected %s\n", what);
}

// Plain memory, so that a missing order between threads is a race.
void every_piece_runs_once(int pieces, double time) {
  std::vector<int> runs(static_cast<size_t>(pieces));
  fl::parallel_pieces(pieces, time, [&](int piece, int) { ++runs[static_cast<size_t>(piece)]; });
  for (int count : runs) expect(count == 1, "each piece to run once");
}

void nested_regions() {
  std::vector<int64_t> sums(8);
  fl::parallel_pieces(8, 1e9, [&](int piece, int) {
    fl::parallel_for(100'000, 10, [&](int64_t begin, int64_t end) { sums[static_cast<size_t>(piece)] += end - begin; });
  });
  for (int64_t sum : sums) expect(sum == 100'000, "nested regions to cover their ranges");
}

void exceptions() {
  bool thrown = false;
  try {
    fl::parallel_pieces(6, 1e9, [&](int piece, int) {
      if (piece % 2) throw std::runtime_error("a piece failed");
    });
  } catch (const std::runtime_error&) {
    thrown = true;
  }
  expect(thrown, "the exception of a piece");
}

struct Meeting {
  std::atomic<int> arrived{0};
};
void gang(int threads) {  // every piece waits for all others
  Meeting meeting;
  const fl::PieceFunction wait = [](const void* context, int, int pieces) {
    auto& arrived = static_cast<Meeting*>(const_cast<void*>(context))->arrived;
    ++arrived;
    while (arrived < pieces) std::this_thread::yield();
  };
  {
    const fl::Gang others(threads, wait, &meeting);
    wait(&meeting, 0, threads);
  }
  expect(meeting.arrived == threads, "all pieces of a gang");
}

}  // namespace

int main() {
  fl::set_num_threads(6);
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller)
    callers.emplace_back([caller] {
      for (int round = 0; round < 150; ++round) {
        every_piece_runs_once(2 + (round + caller) % 9, round % 3 ? 1e9 : 1e3);
        if (round % 10 == 0) nested_regions();
        if (round % 10 == 3) exceptions();
        if (round % 10 == 6) gang(2 + round % 4);
        if (round % 25 == 9) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // workers fall asleep
        if (caller == 0 && round % 40 == 20) fl::set_num_threads(2 + round % 7);
        const fl::PoolHold hold;
      }
    });
  for (std::thread& caller : callers) caller.join();
  const fl::PoolCounters counters = fl::pool_counters();
  expect(counters.regions > 500 && counters.members > 0, "regions with members");
  return wrong ? 1 : 0;
}
