#include "src/serve/server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

namespace tandem::serve {
namespace {

constexpr int kRestMs = 50;  // after an error of accept, such as no descriptors left

// What is in the socket's buffer would make close() withdraw the answer.
void CloseAfterAnswer(int connection) {
  shutdown(connection, SHUT_WR);
  std::array<char, 4096> rest;
  for (int i = 0; i < 64; ++i) {
    if (recv(connection, rest.data(), rest.size(), MSG_DONTWAIT) <= 0) break;
  }
}

}  // namespace

Server::Server(Handler handler) : stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  set_pre_routing_handler(
      [handler = std::move(handler)](const httplib::Request& request, httplib::Response& response) {
        handler(request, response);
        return HandlerResponse::Handled;
      });
  set_keep_alive_max_count(kMostRequests);
}

Server::~Server() {
  Stop();
  std::vector<std::thread> threads;
  {
    const MutexLock lock(mutex_);
    threads.swap(threads_);
  }
  for (std::thread& thread : threads) thread.join();
}

void Server::Serve(int listener) {
  svr_sock_ = listener;  // by which the library knows that it is not shutting down
  for (;;) {
    std::array<pollfd, 2> events = {{{listener, POLLIN, 0}, {stop_.get(), POLLIN, 0}}};
    poll(events.data(), events.size(), -1);
    if (events[1].revents != 0) return;
    if (events[0].revents != 0) Accept(listener);
  }
}

void Server::Stop() {
  eventfd_write(stop_.get(), 1);
  svr_sock_ = INVALID_SOCKET;
  const MutexLock lock(mutex_);
  stopped_ = true;
  queue_.clear();
  for (const int connection : busy_) shutdown(connection, SHUT_RDWR);
  changed_.NotifyAll();
}

void Server::Accept(int listener) {
  UniqueFd connection(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!connection) {
    const bool passing = errno == EAGAIN || errno == EINTR || errno == ECONNABORTED;
    if (!passing) {
      pollfd event{stop_.get(), POLLIN, 0};
      poll(&event, 1, kRestMs);
    }
    return;
  }
  const int on = 1;
  setsockopt(connection.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  if (Take(&connection)) return;
  const std::string text = RefusalText(503, "there are too many connections; try again later");
  if (send(connection.get(), text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
    CloseAfterAnswer(connection.get());
  }
}

bool Server::Take(UniqueFd* connection) {
  const MutexLock lock(mutex_);
  if (stopped_ || busy_.size() + queue_.size() >= kMostConnections) return false;
  if (busy_.size() + queue_.size() >= threads_.size() && !StartThread()) return false;
  queue_.push_back(std::move(*connection));
  changed_.NotifyOne();
  return true;
}

bool Server::StartThread() {
  try {
    threads_.emplace_back([this] { Work(); });
  } catch (const std::system_error&) {
    return !threads_.empty();  // another one will take it
  }
  return true;
}

void Server::Work() {
  for (;;) {
    UniqueFd connection;
    {
      const MutexLock lock(mutex_);
      while (!stopped_ && queue_.empty()) changed_.Wait(mutex_);
      if (stopped_) return;
      connection = std::move(queue_.front());
      queue_.pop_front();
      busy_.insert(connection.get());
    }
    Converse(connection.get());
    CloseAfterAnswer(connection.get());
    const MutexLock lock(mutex_);
    busy_.erase(connection.get());
    connection.Reset();  // under the lock: Stop must not meet another one of that number
  }
}

bool Server::IsCrowded() {
  const MutexLock lock(mutex_);
  return busy_.size() + queue_.size() > kMostConnections / 2;
}

void Server::Converse(int connection) {
  Stream stream(connection);
  for (size_t request = 1; request <= kMostRequests; ++request) {
    Head head;
    if (!stream.AwaitHead(&head)) return;
    if (head.refused != 0) return stream.Refuse(head);
    bool closed = false;
    const bool last = request == kMostRequests || IsCrowded();
    const bool answered = process_request(stream, last, closed, nullptr);
    if (!answered || closed || last) return;
  }
}

}  // namespace tandem::serve
