// Server: accepts connections and lets the HTTP library answer their requests.
//
// The library's own loop has no bound to connections, and ends at some errors of accept; so that
// only its reading of requests and writing of answers are used.
//
// Threading: Serve on one thread; Stop on any. The handler runs on several threads at once, one for
// each connection.
// Invariants
// 1. There are at most kMostConnections connections, and as many threads. More are refused at once.
// 2. No client ends Serve.
#pragma once

#include <deque>
#include <functional>
#include <set>
#include <thread>
#include <vector>

#include "src/base/mutex.h"
#include "src/base/unique_fd.h"
#include "src/serve/http_library.h"
#include "src/serve/stream.h"

namespace tandem::serve {

inline constexpr size_t kMostConnections = 64;
inline constexpr size_t kMostRequests = 1000;  // of a connection

class Server : private httplib::Server {
 public:
  using Handler = std::function<void(const httplib::Request&, httplib::Response&)>;

  explicit Server(Handler handler);
  ~Server() override;

  // Until Stop. `listener`: not blocking; must stay open until then.
  void Serve(int listener);
  // Ends Serve and all connections.
  void Stop();

 private:
  void Accept(int listener) EXCLUDES_LOCK(mutex_);
  // False: there are too many.
  bool Take(UniqueFd* connection) EXCLUDES_LOCK(mutex_);
  bool StartThread() REQUIRES_LOCK(mutex_);
  void Work() EXCLUDES_LOCK(mutex_);
  void Converse(int connection) EXCLUDES_LOCK(mutex_);
  bool IsCrowded() EXCLUDES_LOCK(mutex_);

  UniqueFd stop_;  // an eventfd
  Mutex mutex_;
  CondVar changed_;
  bool stopped_ GUARDED_BY(mutex_) = false;
  std::deque<UniqueFd> queue_ GUARDED_BY(mutex_);
  std::set<int> busy_ GUARDED_BY(mutex_);  // connections that a thread has
  std::vector<std::thread> threads_ GUARDED_BY(mutex_);
};

}  // namespace tandem::serve
