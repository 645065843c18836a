// Messages from one rank to another, matched by source and tag.
//
// They travel through a ring of bytes for each ordered pair of ranks. Whoever waits, and a background thread
// while there are operations nobody waits for, moves everything forward that can be. A message that no
// receive was posted for yet is put aside. A send is complete when the receiver has taken the message out of
// the ring.
#pragma once

#include <deque>
#include <list>
#include <thread>

#include "distributed/collectives.h"
#include "distributed/work.h"

namespace fl::dist {

struct MessageHead {
  uint64_t number = 0;  // counts the messages of a pair from 1
  int64_t tag = 0;
  int64_t bytes = 0;
  Fingerprint what;
};

class Messages {
 public:
  explicit Messages(Presence& presence);
  ~Messages();

  // The memory of `data` has to live until the work is done; its `results` can see to that.
  void send(const Fingerprint& what, Piece data, int to, int64_t tag, const Limit& limit,
            std::shared_ptr<Work> work, bool wait);
  // From any rank when `from` is -1. `then` runs when the message is there.
  void receive(const Fingerprint& what, Piece data, int from, int64_t tag, const Limit& limit,
               std::shared_ptr<Work> work, std::function<void()> then, bool wait);
  void close();
  std::thread::id thread() const { return thread_.get_id(); }  // fails what is pending

 private:
  struct Operation {
    Fingerprint what;
    Piece data;
    int peer;
    int64_t tag;
    Limit limit;
    std::shared_ptr<Work> work;
    std::function<void()> then;
  };
  struct Outgoing {
    std::deque<Operation> waiting;
    uint64_t number = 0;   // of the message that is being written
    int64_t written = -1;  // bytes of its data; -1 before its head
    uint64_t end = 0;      // position in the ring after it
  };
  struct Parked {
    MessageHead head;
    int from;
    std::vector<char> bytes;
    bool complete = false;
  };
  struct Incoming {
    bool active = false, has_parked = false;
    MessageHead head;
    int64_t got = 0;
    std::optional<Operation> target;  // where the data goes, unless it is parked
    std::list<Parked>::iterator parked;
  };

  bool progress();
  bool push(int to);
  bool pull(int from);
  bool start_message(int from);
  bool serve_parked();
  bool expire();
  void finish_receive(Operation& operation, int from, const MessageHead& head);
  void finish(Operation& operation, std::exception_ptr error);
  std::optional<Operation> take_matching(int from, int64_t tag);
  bool something_to_do() const;
  void drive(const std::shared_ptr<Work>& work);
  void run();
  void start_thread();

  Presence& presence_;
  std::mutex mutex_;
  std::condition_variable posted_;
  std::vector<Outgoing> outgoing_;
  std::vector<Incoming> incoming_;
  std::list<Operation> receives_;
  std::list<Parked> parked_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace fl::dist
