// A store behind a socket: the table lies with a server thread, clients send one request at a time.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>

#include "distributed/store.h"

namespace fl::dist {

namespace {

std::string reason() {
  return strerror(errno);
}

void set_options(int socket) {
  int on = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

int listen_at(uint16_t port) {
  const int socket_ = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  int on = 1, off = 0;
  if (socket_ >= 0) {
    setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(socket_, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(port);
    address.sin6_addr = in6addr_any;
    if (bind(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
        listen(socket_, 2048) == 0)
      return socket_;
    const int error = errno;
    close(socket_);
    if (error == EADDRINUSE)
      fail_as(Failure::Network,
              "[TCPStore] The server socket has failed to listen on any local network address. port: ", port,
              ", name: EADDRINUSE, message: address already in use");
  }
  const int four = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (four < 0) fail_as(Failure::Network, "[TCPStore] cannot make a socket: ", reason());
  setsockopt(four, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  if (bind(four, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 || listen(four, 2048) != 0) {
    const std::string why = reason();
    close(four);
    fail_as(Failure::Network,
            "[TCPStore] The server socket has failed to listen on any local network address. port: ", port,
            ", message: ", why);
  }
  return four;
}

uint16_t port_of(int socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length);
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

}  // namespace

class TcpServer {
 public:
  explicit TcpServer(int listening)
      : listening_(listening), port_(port_of(listening)), wake_(eventfd(0, EFD_CLOEXEC)) {
    thread_ = std::thread([this] { serve(); });
  }
  ~TcpServer() {
    stopping_ = true;
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake_, &one, sizeof one);
    thread_.join();
    for (auto& client : clients_) close(client.first);
    close(listening_);
    close(wake_);
  }
  uint16_t port() const { return port_; }

  // Servers of this process by port, for stores that share one.
  static std::shared_ptr<TcpServer> start(uint16_t port, bool share, int listening) {
    static std::mutex mutex;
    static std::map<uint16_t, std::weak_ptr<TcpServer>> servers;
    std::lock_guard<std::mutex> lock(mutex);
    if (share && port != 0)
      if (auto running = servers[port].lock()) return running;
    if (listening >= 0 && listen(listening, 2048) != 0)  // the socket may only be bound so far
      fail_as(Failure::Network, "[TCPStore] expected a bound socket as master_listen_fd, got ", listening,
              ": ", reason());
    auto server = std::make_shared<TcpServer>(listening >= 0 ? listening : listen_at(port));
    if (share) servers[server->port()] = server;
    return server;
  }

 private:
  struct Client {
    std::string input, output;
  };
  struct Pending {
    int client;
    uint64_t id;
    Request request;
  };

  void serve() {
    std::vector<pollfd> polled;
    while (!stopping_) {
      polled.assign({{listening_, POLLIN, 0}, {wake_, POLLIN, 0}});
      for (const auto& [socket, client] : clients_)
        polled.push_back({socket, static_cast<short>(POLLIN | (client.output.empty() ? 0 : POLLOUT)), 0});
      if (poll(polled.data(), polled.size(), -1) < 0) continue;
      if (polled[0].revents) accept_client();
      for (size_t i = 2; i < polled.size(); ++i)
        if (polled[i].revents) {
          if (polled[i].revents & POLLOUT) flush(polled[i].fd);
          if (polled[i].revents & ~POLLOUT) receive(polled[i].fd);
        }
    }
  }

  void accept_client() {
    const int socket = accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (socket < 0) return;
    set_options(socket);
    clients_[socket];
  }

  void drop(int socket) {
    for (size_t i = pending_.size(); i-- > 0;)
      if (pending_[i].client == socket) pending_.erase(pending_.begin() + static_cast<ptrdiff_t>(i));
    clients_.erase(socket);
    close(socket);
  }

  void receive(int socket) {
    auto client = clients_.find(socket);
    if (client == clients_.end()) return;
    char buffer[65536];
    for (;;) {
      const ssize_t got = recv(socket, buffer, sizeof buffer, 0);
      if (got > 0) {
        client->second.input.append(buffer, static_cast<size_t>(got));
        if (got < static_cast<ssize_t>(sizeof buffer)) break;
        continue;
      }
      if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
      if (got < 0 && errno == EINTR) continue;
      drop(socket);
      return;
    }
    try {
      size_t used = 0;
      std::string& input = client->second.input;
      while (auto frame = decode(input.data() + used, input.size() - used)) {
        used += frame->second;
        handle(socket, std::move(frame->first));
      }
      input.erase(0, used);
    } catch (const std::exception&) {
      drop(socket);  // not one of our clients
    }
  }

  void handle(int socket, Frame frame) {
    Request request{static_cast<Command>(frame.kind), std::move(frame.fields)};
    if (request.command == Command::Cancel) {
      for (size_t i = pending_.size(); i-- > 0;)
        if (pending_[i].client == socket && pending_[i].id == frame.id)
          pending_.erase(pending_.begin() + static_cast<ptrdiff_t>(i));
      return;
    }
    if (auto values = table_.apply(request)) {
      answer(socket, frame.id, *values);
      if (changes(request.command)) retry();
    } else {
      pending_.push_back({socket, frame.id, std::move(request)});
    }
  }

  void retry() {
    for (size_t i = 0; i < pending_.size();) {
      if (auto values = table_.apply(pending_[i].request)) {
        const Pending done = std::move(pending_[i]);
        pending_.erase(pending_.begin() + static_cast<ptrdiff_t>(i));
        answer(done.client, done.id, *values);
      } else {
        ++i;
      }
    }
  }

  void answer(int socket, uint64_t id, const Values& values) {
    auto client = clients_.find(socket);
    if (client == clients_.end()) return;
    client->second.output += encode(id, 0, values);
    flush(socket);
  }

  void flush(int socket) {
    auto client = clients_.find(socket);
    if (client == clients_.end()) return;
    std::string& output = client->second.output;
    while (!output.empty()) {
      const ssize_t sent = send(socket, output.data(), output.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;  // poll says when there is room, or that the client is gone
      output.erase(0, static_cast<size_t>(sent));
    }
  }

  int listening_;
  uint16_t port_;
  int wake_;
  std::atomic<bool> stopping_{false};
  std::map<int, Client> clients_;
  std::vector<Pending> pending_;
  Table table_;
  std::thread thread_;
};

TcpStore::TcpStore(const std::string& host, uint16_t port, bool serve, bool share, int listening,
                   Milliseconds timeout) {
  if (serve) {
    server_ = TcpServer::start(port, share, listening);
    port = server_->port();
  }
  port_ = port;
  connect(serve ? "localhost" : host, timeout);
}

TcpStore::~TcpStore() {
  if (socket_ >= 0) close(socket_);
}

void TcpStore::connect(const std::string& host, Milliseconds timeout) {
  const auto until = Clock::now() + timeout;
  std::string why = "no address";
  for (auto pause = Milliseconds(2);; pause = std::min(pause * 2, Milliseconds(200))) {
    addrinfo hints{}, *addresses = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    const int status = getaddrinfo(host.c_str(), std::to_string(port_).c_str(), &hints, &addresses);
    if (status != 0) why = gai_strerror(status);
    for (addrinfo* a = addresses; a && socket_ < 0; a = a->ai_next) {
      const int candidate = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
      if (candidate < 0) continue;
      if (::connect(candidate, a->ai_addr, a->ai_addrlen) == 0)
        socket_ = candidate;
      else {
        why = reason();
        close(candidate);
      }
    }
    if (addresses) freeaddrinfo(addresses);
    if (socket_ >= 0) break;
    if (Clock::now() >= until)
      fail_as(Failure::Network, "[TCPStore] The client socket has timed out after ", timeout.count(),
              "ms while trying to connect to (", host, ", ", port_, "): ", why);
    std::this_thread::sleep_for(pause);
  }
  set_options(socket_);
}

void TcpStore::write_all(const std::string& bytes) {
  size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t n = send(socket_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail_as(Failure::Network, "[TCPStore] the connection to the server is gone: ", reason());
    sent += static_cast<size_t>(n);
  }
}

bool TcpStore::read_exactly(char* to, size_t bytes, Clock::time_point until) {
  size_t have = 0;
  while (have < bytes) {
    const auto left = std::chrono::duration_cast<Milliseconds>(until - Clock::now()).count();
    pollfd polled{socket_, POLLIN, 0};
    const int ready = poll(&polled, 1, static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30)));
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) {
      // Once a message has begun, the rest is on its way.
      if (have == 0) return false;
      continue;
    }
    const ssize_t n = recv(socket_, to + have, bytes - have, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail_as(Failure::Network, "[TCPStore] the connection to the server is gone");
    have += static_cast<size_t>(n);
  }
  return true;
}

Values TcpStore::call(const Request& request, Milliseconds timeout) {
  std::lock_guard<std::mutex> lock(mutex_);
  const uint64_t id = next_id_++;
  const auto until = Clock::now() + timeout;
  write_all(encode(id, static_cast<uint8_t>(request.command), request.fields));
  for (;;) {
    uint32_t size;
    if (!read_exactly(reinterpret_cast<char*>(&size), 4, until)) {
      write_all(encode(id, static_cast<uint8_t>(Command::Cancel), {}));
      fail_waiting(request, timeout);
    }
    std::string bytes(size_t{4} + size, '\0');
    std::memcpy(bytes.data(), &size, 4);
    read_exactly(bytes.data() + 4, size, Clock::time_point::max());
    auto frame = decode(bytes.data(), bytes.size());
    if (frame->first.id == id)
      return std::move(frame->first.fields);  // else the late answer of a cancelled one
  }
}

}  // namespace fl::dist
