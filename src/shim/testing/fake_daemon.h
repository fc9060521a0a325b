// FakeDaemon: the daemon's end of the socket for tests. It registers every client, answers
// reservations, contexts and offers of memory by itself, and keeps every other message for the test
// to expect.
//
// Threading: one thread of its own serves the socket; the test uses the rest.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "src/base/bytes.h"
#include "src/base/mutex.h"
#include "src/wire/channel.h"
#include "src/wire/pages.h"

namespace tandem::shim {

class FakeDaemon {
 public:
  // Listens in a directory of its own and points TANDEM_RUNTIME_DIR there.
  FakeDaemon(Bytes card, Bytes limit, Bytes chunk);
  ~FakeDaemon();
  FakeDaemon(const FakeDaemon&) = delete;
  FakeDaemon& operator=(const FakeDaemon&) = delete;

  void Send(const wire::Message& message) EXCLUDES_LOCK(mutex_);
  // Another session waits from now on.
  void Contend() EXCLUDES_LOCK(mutex_);
  // Ends the connection as a daemon that dies does; the next client is welcome.
  void HangUp() EXCLUDES_LOCK(mutex_);
  // While set, connections are ended as soon as they are made.
  void Refuse(bool refuse) EXCLUDES_LOCK(mutex_);
  void AwaitRefusal() EXCLUDES_LOCK(mutex_);
  // From now on it also answers by itself what is asked for that cannot be swapped, and grants so
  // much of it.
  void GrantFixed(Bytes most) EXCLUDES_LOCK(mutex_);
  Bytes fixed() EXCLUDES_LOCK(mutex_) {
    MutexLock lock(mutex_);
    return fixed_;
  }
  // Waits until that much of it is granted and not given back.
  void AwaitFixed(Bytes bytes) EXCLUDES_LOCK(mutex_);

  // How much memory was offered so far.
  int offered() EXCLUDES_LOCK(mutex_) {
    MutexLock lock(mutex_);
    return offered_;
  }
  // As if its maker had ended.
  void ForgetOffers() EXCLUDES_LOCK(mutex_) {
    MutexLock lock(mutex_);
    offers_.clear();
  }
  // Refuses the next `count` offers; without a reason it does not answer them.
  void TurnAwayOffers(std::optional<wire::RefusalCode> why, int count) EXCLUDES_LOCK(mutex_) {
    MutexLock lock(mutex_);
    turn_away_ = count;
    why_ = why;
  }

  // The next message that is not answered by itself must be a T.
  template <typename T>
  T Expect() EXCLUDES_LOCK(mutex_) {
    const wire::Message message = Next();
    if (!std::holds_alternative<T>(message)) {
      ADD_FAILURE() << "message of type " << message.index() << " instead";
      return T();
    }
    return std::get<T>(message);
  }

  // What the program has told of its restores, which no Expect returns. All that it told before the
  // last message that one did is among it.
  std::vector<wire::Restored> TakeRestored() EXCLUDES_LOCK(mutex_);

  wire::DecisionsPage& decisions() { return *decisions_; }
  const wire::ReportsPage& reports() const { return *reports_; }

 private:
  void Serve();
  // Who comes while there is a session: with memory, or with a new session in its place.
  void LetIn() EXCLUDES_LOCK(mutex_);
  void AnswerOffer(wire::Channel& channel, const wire::Message& message) REQUIRES_LOCK(mutex_);
  void Welcome(const wire::Register& message) REQUIRES_LOCK(mutex_);
  wire::Message Next() EXCLUDES_LOCK(mutex_);
  bool AnswerFixed(const wire::Message& message) REQUIRES_LOCK(mutex_);

  const Bytes card_, limit_, chunk_;
  std::string directory_;
  UniqueFd listener_;
  UniqueFd decisions_fd_, reports_fd_;
  wire::DecisionsPage* decisions_ = nullptr;
  wire::ReportsPage* reports_ = nullptr;
  std::thread server_;

  Mutex mutex_;
  CondVar came_;
  bool stop_ GUARDED_BY(mutex_) = false;
  bool hang_up_ GUARDED_BY(mutex_) = false;
  bool refuse_ GUARDED_BY(mutex_) = false;
  int refusals_ GUARDED_BY(mutex_) = 0;
  wire::Channel channel_;  // replaced by the server under the lock
  Bytes total_ GUARDED_BY(mutex_);
  std::optional<Bytes> most_fixed_ GUARDED_BY(mutex_);
  Bytes fixed_ GUARDED_BY(mutex_);
  std::deque<wire::Message> messages_ GUARDED_BY(mutex_);
  std::vector<wire::Restored> restored_ GUARDED_BY(mutex_);
  int offered_ GUARDED_BY(mutex_) = 0;
  int turn_away_ GUARDED_BY(mutex_) = 0;
  std::optional<wire::RefusalCode> why_ GUARDED_BY(mutex_);
  std::map<std::pair<uint64_t, uint64_t>, UniqueFd> offers_ GUARDED_BY(mutex_);
};

}  // namespace tandem::shim
