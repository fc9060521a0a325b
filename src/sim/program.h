// Program: a session in virtual time. What it may do and says it has of client::Lease and
// client::Requests, the code that libtandem.so runs; its memory is a number of bytes, its work a
// time on the card's engine.
//
// It wants to work, waits until it may, works, and does something else for a while (Habits).
//
// Threading: none.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "src/client/lease.h"
#include "src/client/requests.h"
#include "src/sim/card.h"
#include "src/sim/timeline.h"
#include "src/wire/messages.h"
#include "src/wire/pages.h"

namespace tandem::sim {

// What one does, each time anew.
struct Habits {
  std::function<Duration()> think;  // before a burst
  std::function<Duration()> burst;  // alone on the card
  Bytes memory;
  std::string of_class = {};  // of its run; empty: it is of none
};

struct Burst {
  Instant ready;    // it wants to work
  Instant started;  // its first kernel does
  Instant ended;
  Duration work;
};

// What the daemon lets a session see; it stays there when the daemon is gone.
using Decisions = std::shared_ptr<const wire::DecisionsPage>;

class Program {
 public:
  using Send = std::function<void(wire::Message)>;
  using OnBurst = std::function<void(const Burst&)>;

  Program(Timeline* timeline, Card* card, Bytes chunk, Habits habits, Send send, OnBurst on_burst)
      : timeline_(timeline),
        card_(card),
        chunk_(chunk),
        habits_(std::move(habits)),
        send_(std::move(send)),
        on_burst_(std::move(on_burst)) {}
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  ~Program() { *alive_ = false; }

  // What the daemon says.
  void Hear(const wire::Message& message, const Decisions& page);
  // It is there; or there again, and knows nothing of what was. `run`: token; 0: of none.
  void Greet(const std::string& device, uint64_t run);
  // It is gone.
  void OnLost();
  // SIGSTOP, and SIGCONT at that instant. What its work on the card does goes on.
  void StopUntil(Instant instant);
  // SIGKILL.
  void Die();

  // Off the card, and has to be copied back.
  Bytes swapped() const { return SaturatingSubtract(written_, resident_); }
  // On the card, or on its way there.
  Bytes resident() const { return resident_ + coming_; }
  // It wants to work and does not, since then.
  std::optional<Instant> waiting_since() const;

 private:
  Timeline::Call Mine(Timeline::Call call);
  void GoOn();
  void After(Duration delay, Timeline::Call call) {
    timeline_->After(delay, Mine(std::move(call)));
  }
  void Understand(const wire::Message& message, const Decisions& page);
  void OnRegistered(const wire::Registered& registered);
  void Begin();
  void Think();
  void WantToWork();
  void Work();
  void EndBurst();
  void WatchIdleness();
  // Whether it is to say when it pauses.
  bool watched() const {
    return page_ != nullptr && (page_->contended.load() != 0 || page_->watched.load() != 0);
  }
  client::View View() const;
  void Go();
  void Do(client::Step step);
  void Drain();
  void Evict();
  void Restore();
  void Open();
  void Flush();

  Timeline* const timeline_;
  Card* const card_;
  const Bytes chunk_;
  const Habits habits_;
  const Send send_;
  const OnBurst on_burst_;
  client::Lease lease_;
  client::Requests requests_;
  uint64_t context_ticket_ = 0;
  bool begun_ = false;  // has asked for its memory and its context
  Bytes claimed_;       // of the daemon that it greeted last
  uint32_t claimed_contexts_ = 0;
  bool ready_ = false;  // has its context and its memory
  bool busy_ = false;   // a step is under way, and Go comes after it
  Decisions page_;
  Bytes need_, resident_, coming_, brought_;
  Bytes written_;       // the most it had on the card at some time; beyond that nothing is copied
  bool wants_ = false;  // threads wait at the gate
  std::optional<Burst> burst_;
  Duration left_;         // of it
  uint64_t running_ = 0;  // on the card; 0: not
  uint64_t runs_ = 0;     // so far
  Instant stopped_until_;
  std::deque<Timeline::Call> held_;  // what came while it was stopped
  std::optional<Instant> waiting_since_;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // what is planned looks
};

}  // namespace tandem::sim
