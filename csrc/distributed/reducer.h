// The reducer of data-parallel training: averages gradients over the processes of a group while backward goes
// on.
//
// Parameters are assigned to buckets. A hook on each leaf counts; when all gradients of a bucket are there,
// it is reduced, in the order of the buckets. Where the group shares memory, its thread reduces the gradients
// where they lie (`ProcessGroup::all_reduce` of several tensors); otherwise they are copied to the bucket's
// memory, and the owner starts the reduction. With the gradients goes a count for each parameter of the
// processes that used it, so that nobody has to know beforehand what others use.
#pragma once

#include "autograd/node.h"
#include "distributed/process_group.h"

namespace fl::dist {

// How the gradients of one backward pass are reduced.
struct Pass {
  std::shared_ptr<ProcessGroup>
      group;  // reduces gradients where they lie; null: copies to the buckets' memory
  Milliseconds timeout{0};
  double divisor = 0;   // instead of the group's size
  bool at_end = false;  // nothing starts before the end of backward
};

// Who owns a reducer, in another language.
class ReducerOwner {
 public:
  virtual ~ReducerOwner() = default;
  virtual bool begin(Pass& pass) = 0;  // false: the gradients of this backward pass stay as they are
  virtual void start(int bucket) = 0;  // the bucket's memory is filled
  virtual void finish() = 0;           // backward is through, and everything has started
};

class Reducer : public std::enable_shared_from_this<Reducer> {
 public:
  Reducer(Tensors parameters, std::unique_ptr<ReducerOwner> owner);
  ~Reducer();
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  void attach(void* python);  // puts hooks on the parameters, in the name of that object
  void assign(const std::vector<std::vector<int>>& buckets);  // which parameters are in which bucket
  void set_memory(int bucket, Tensors views, Tensor used);    // where gradients are copied, and their counts
  void begin();                   // backward has started; the first gradient does the same
  void shadow(const Pass& pass);  // takes part in the reductions of a pass with zeros
  // The running reduction of a bucket whose gradients are reduced where they lie.
  WorkRef work(int bucket) const { return buckets_.at(bucket).work; }
  // Gradients came after the bucket was reduced; reduces them as well.
  bool repeats(int bucket) const { return buckets_.at(bucket).repeat; }
  void repeat(int bucket);
  // The reduced gradients become those of the parameters that some process used; without counts, of all.
  void hand_out(int bucket, bool as_view, bool counted);
  // Parameters in the order in which their gradients were there; empty when one had none.
  std::vector<int> order() const;
  // Nanoseconds of the system's clock: when the last pass started its first reduction, and when its backward
  // was through.
  std::pair<int64_t, int64_t> times() const { return {first_start_, backward_end_}; }
  // From now on a gradient is there when it came as often as in the last pass.
  void expect_repeats() { expected_ = seen_; }

 private:
  struct Hook;
  struct Session;
  struct Bucket {
    std::vector<int> indices;
    int waiting = 0;
    bool started = false, repeat = false;
    Tensors views;          // the bucket's memory
    Tensor used;            // counts, behind the views where there is memory
    Tensors rooms, extras;  // what is reduced where it lies: gradients or stand-ins, and what came later
    WorkRef work;
  };

  void start_pass();
  void before_gradient(int index);
  void on_gradient(int index);
  void start(int number);
  void start_rest();
  // Whether this process contributes a gradient: of this pass, or one that was only accumulated before it.
  bool uses(int index) const;
  void abandon();  // backward failed here: the reductions that the others wait for fail everywhere
  void collect(Bucket& bucket, size_t place);
  void reduce_in_place(int number, const Tensors& rooms);
  void hand_out_room(Bucket& bucket, size_t place);
  void hand_out_view(Bucket& bucket, size_t place, bool as_view);

  Tensors parameters_;
  std::unique_ptr<ReducerOwner> owner_;
  std::vector<Bucket> buckets_;
  std::vector<std::pair<int, int>> places_;  // of a parameter: bucket, place in it
  std::vector<int> seen_, expected_;         // gradients of each parameter in a pass
  std::vector<char> kept_;  // those that got one in passes that were left alone since the last one
  std::vector<int> order_;
  std::vector<Ref<autograd::Hook>> hooks_;
  Pass pass_;
  size_t next_ = 0;                          // the bucket that starts next
  bool running_ = false, skipping_ = false;  // a backward pass is followed, or left alone
  int32_t passes_ = 0;
  int64_t first_start_ = 0, backward_end_ = 0;
};

}  // namespace fl::dist
