// Stream: a client's connection, as the HTTP library reads requests from it and writes answers to.
//
// Threading: one thread; any thread may shut the socket down.
// Invariants
// 1. Of a request no more than its head is kept, and of that kLongestHead bytes at most.
// 2. Every wait ends: for the first byte of a request, for its whole head, and for a reader that
//    takes less than kLeastBytesPerSecond.
#pragma once

#include <string>

#include "src/base/time.h"
#include "src/base/unique_fd.h"
#include "src/serve/head.h"
#include "src/serve/http_library.h"

namespace tandem::serve {

inline constexpr Duration kIdlePatience = Seconds(5);   // between two requests
inline constexpr Duration kHeadPatience = Seconds(5);   // from a request's first byte to its last
inline constexpr Duration kWritePatience = Seconds(5);  // for a reader that takes nothing
inline constexpr int64_t kLeastBytesPerSecond = 65536;

class Stream : public httplib::Stream {
 public:
  // `socket`: not blocking; must outlive it.
  explicit Stream(int socket) : socket_(socket) {}

  // Waits for the next request. False: the client is gone or too slow. `head` may be a refusal.
  bool AwaitHead(Head* head);
  // Sends the refusal. Nothing that the client sent after it is read.
  void Refuse(const Head& head);

  // Of httplib::Stream.
  bool is_readable() const override { return true; }
  bool is_writable() const override;  // the client has not ended the connection
  ssize_t read(char* to, size_t size) override;
  ssize_t write(const char* from, size_t size) override;
  void get_remote_ip_and_port(std::string& ip, int& port) const override {}
  void get_local_ip_and_port(std::string& ip, int& port) const override {}
  socket_t socket() const override { return socket_; }

 private:
  bool Await(short events, Instant deadline) const;
  // Reads what is there; false at the end.
  bool Fill(Instant deadline);

  const int socket_;
  std::string received_;  // and not given to the library
  std::string head_;      // for the library
  size_t given_ = 0;      // of it
};

// The answer to a client whose connection is then closed.
std::string RefusalText(int status, const std::string& reason);

}  // namespace tandem::serve
