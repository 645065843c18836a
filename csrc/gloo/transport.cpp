// Gloo between hosts, behind functions of C that flambeau.distributed._hosts calls. A library of its own,
// which is built where Debian's libgloo-dev is found and opened when a group first has processes on several
// hosts.
//
// Functions return 0, or -1 with the reason in fl_gloo_error().
#include <gloo/allgatherv.h>
#include <gloo/allreduce.h>
#include <gloo/alltoallv.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>

#include <complex>
#include <cstring>
#include <string>

#include "distributed/reduce.h"

namespace {

using Milliseconds = std::chrono::milliseconds;

thread_local std::string last_error;

// The store of the group, which lives in Python. `get` fills a buffer and returns the number of bytes, -1
// when it failed.
using SetKey = int (*)(const char* key, const char* data, long size);
using GetKey = long (*)(const char* key, char* data, long room);

class CallbackStore : public gloo::rendezvous::Store {
 public:
  CallbackStore(SetKey set, GetKey get) : set_(set), get_(get) {}
  void set(const std::string& key, const std::vector<char>& data) override {
    if (set_(key.c_str(), data.data(), static_cast<long>(data.size())) != 0)
      throw std::runtime_error("the store could not be written");
  }
  std::vector<char> get(const std::string& key) override {
    std::vector<char> data(1 << 20);
    const long size = get_(key.c_str(), data.data(), static_cast<long>(data.size()));
    if (size < 0) throw std::runtime_error("the store has no key " + key);
    data.resize(static_cast<size_t>(size));
    return data;
  }
  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) get(key);
  }

 private:
  SetKey set_;
  GetKey get_;
};

struct Link {
  std::shared_ptr<gloo::rendezvous::Context> context;
};

template <class F>
int guarded(F&& f) {
  try {
    f();
    return 0;
  } catch (const std::exception& error) {
    last_error = error.what();
    return -1;
  }
}

std::shared_ptr<gloo::Context> context_of(void* link) {
  return static_cast<Link*>(link)->context;
}

fl::DType dtype_of(const char* name) {
  for (int i = 0; i < fl::kAllDTypes; ++i)
    if (std::strcmp(fl::name_of(static_cast<fl::DType>(i)), name) == 0) return static_cast<fl::DType>(i);
  throw std::runtime_error(std::string("no dtype is called ") + name);
}

}  // namespace

extern "C" {

const char* fl_gloo_error() {
  return last_error.c_str();
}

void* fl_gloo_open(const char* address, int rank, int size, long timeout, SetKey set, GetKey get) {
  Link* link = nullptr;
  const int status = guarded([&] {
    gloo::transport::tcp::attr attributes;
    attributes.hostname = address;
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);
    context->setTimeout(Milliseconds(timeout));
    CallbackStore store(set, get);
    context->connectFullMesh(store, device);
    link = new Link{std::move(context)};
  });
  return status == 0 ? link : nullptr;
}

void fl_gloo_close(void* link) {
  guarded([&] {
    static_cast<Link*>(link)->context->closeConnections();
    delete static_cast<Link*>(link);
  });
}

int fl_gloo_barrier(void* link, unsigned tag, long timeout) {
  return guarded([&] {
    gloo::BarrierOptions options(context_of(link));
    options.setTag(tag);
    options.setTimeout(Milliseconds(timeout));
    gloo::barrier(options);
  });
}

int fl_gloo_broadcast(void* link, void* data, long bytes, int root, unsigned tag, long timeout) {
  return guarded([&] {
    gloo::BroadcastOptions options(context_of(link));
    options.setOutput(static_cast<char*>(data), static_cast<size_t>(bytes));
    options.setRoot(root);
    options.setTag(tag);
    options.setTimeout(Milliseconds(timeout));
    gloo::broadcast(options);
  });
}

int fl_gloo_all_reduce(void* link, void* data, long elements, const char* dtype, int reduction, unsigned tag,
                       long timeout) {
  return guarded([&] {
    const fl::DType type = dtype_of(dtype);
    const auto kind = static_cast<fl::dist::Reduction>(reduction);
    const auto item = static_cast<size_t>(fl::size_of(type));
    gloo::AllreduceOptions options(context_of(link));
    // Elements are handed over as bytes in units of their size, so that any dtype goes.
    const auto buffer = [&] {
      return context_of(link)->createUnboundBuffer(data, static_cast<size_t>(elements) * item);
    };
    const auto set = [&](auto unit) { options.setOutput<decltype(unit)>(buffer()); };
    if (item == 1)
      set(uint8_t{});
    else if (item == 2)
      set(uint16_t{});
    else if (item == 4)
      set(uint32_t{});
    else if (item == 8)
      set(uint64_t{});
    else
      set(std::complex<double>{});
    options.setReduceFunction([=](void* to, const void* a, const void* b, size_t count) {
      const void* sources[] = {a, b};
      fl::dist::reduce(to, sources, 2, static_cast<int64_t>(count), type, kind);
    });
    options.setTag(tag);
    options.setTimeout(Milliseconds(timeout));
    gloo::allreduce(options);
  });
}

int fl_gloo_all_gather(void* link, void* input, long bytes, void* output, const long* sizes, unsigned tag,
                       long timeout) {
  return guarded([&] {
    const auto context = context_of(link);
    gloo::AllgathervOptions options(context);
    options.setInput(static_cast<char*>(input), static_cast<size_t>(bytes));
    options.setOutput(static_cast<char*>(output), std::vector<size_t>(sizes, sizes + context->size));
    options.setTag(tag);
    options.setTimeout(Milliseconds(timeout));
    gloo::allgatherv(options);
  });
}

int fl_gloo_all_to_all(void* link, void* input, const long* input_sizes, void* output,
                       const long* output_sizes, unsigned tag, long timeout) {
  return guarded([&] {
    const auto context = context_of(link);
    gloo::AlltoallvOptions options(context);
    options.setInput(static_cast<char*>(input),
                     std::vector<int64_t>(input_sizes, input_sizes + context->size));
    options.setOutput(static_cast<char*>(output),
                      std::vector<int64_t>(output_sizes, output_sizes + context->size));
    options.setTag(tag);
    options.setTimeout(Milliseconds(timeout));
    gloo::alltoallv(options);
  });
}

// Messages: the handle is a buffer that is waited for once.
void* fl_gloo_send(void* link, void* data, long bytes, int to, uint64_t slot) {
  gloo::transport::UnboundBuffer* buffer = nullptr;
  guarded([&] {
    auto owned = context_of(link)->createUnboundBuffer(data, static_cast<size_t>(bytes));
    owned->send(to, slot);
    buffer = owned.release();
  });
  return buffer;
}

void* fl_gloo_receive(void* link, void* data, long bytes, const int* from, int sources, uint64_t slot) {
  gloo::transport::UnboundBuffer* buffer = nullptr;
  guarded([&] {
    auto owned = context_of(link)->createUnboundBuffer(data, static_cast<size_t>(bytes));
    owned->recv(std::vector<int>(from, from + sources), slot);
    buffer = owned.release();
  });
  return buffer;
}

int fl_gloo_wait(void* handle, int is_send, long timeout, int* source) {
  std::unique_ptr<gloo::transport::UnboundBuffer> buffer(
      static_cast<gloo::transport::UnboundBuffer*>(handle));
  return guarded([&] {
    const Milliseconds limit(timeout);
    const bool done = is_send ? buffer->waitSend(limit) : buffer->waitRecv(source, limit);
    if (!done) throw std::runtime_error("the operation was aborted");
  });
}

}  // extern "C"
