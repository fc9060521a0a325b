// The messages between programs that use a GPU (through libtandem.so), `tandem` and `tandemd`.
//
// On the stream each is a Header followed by its fields in order: integers little-endian, strings
// as a 16-bit length and bytes. Every message has a bound on its size, every string on its length;
// whatever breaks a bound is refused by the decoder (codec.h), which never reads past its input.
//
// Invariants
// 1. Header and Refused keep their layout in every version, so that two sides that do not
//    understand each other can still say so.
// 2. Nothing a client says about who it is is here: uid and pid come from the socket.
// 3. A daemon adapts to programs and a `tandem` that are older than itself, so that it may be
//    replaced by a newer one under programs that run; they adapt to no older daemon. A field is
//    only ever added at the end of its message, and never taken away; a reader takes a message that
//    is longer than it knows and ignores the rest, and one that lacks fields beyond kRequired,
//    which then have their defaults. Version 2 takes neither: no message that a daemon sends to it
//    may have grown. Whatever is added raises kVersion.
//
// How they follow each other: docs/architecture.md, "The session protocol".
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <type_traits>
#include <variant>

#include "src/wire/order_messages.h"

namespace tandem::wire {

inline constexpr uint32_t kMagic = 0x4d444e54;      // "TNDM"
inline constexpr uint16_t kVersion = 13;            // spoken by this side
inline constexpr uint16_t kOldestVersion = 2;       // understood by it
inline constexpr uint32_t kMaxPayload = 64 * 1024;  // any message but Answer
inline constexpr uint32_t kMaxAnswer = 8 * 1024 * 1024;
inline constexpr uint16_t kMaxString = 4096;

struct Header {
  uint32_t magic = kMagic;
  uint16_t version = kVersion;
  uint16_t type = 0;
  uint32_t length = 0;  // bytes that follow
};
inline constexpr uint32_t kHeaderBytes = 12;

// ---- A program's session, to the daemon

// The first message of a session. A session that lost its daemon registers again with what it
// still has on the card.
struct Register {
  static constexpr uint16_t kType = 1;
  static constexpr size_t kRequired = 7;   // fields; version 2 had no more
  static constexpr uint8_t kUnsaid = 255;  // by version 2
  std::string build;                       // version of the shim, for people
  uint64_t run = 0;                        // token of the `tandem run` it belongs to; 0: none
  std::string device;                      // uuid of the GPU, as FormatUuid prints it
  std::string program;                     // what to call it in listings
  uint64_t allocated_bytes = 0;
  uint64_t resident_bytes = 0;  // on the card now, contexts excluded
  uint32_t contexts = 0;        // contexts it has on the card now
  uint8_t suspended = kUnsaid;  // as the daemon that is gone last showed it
  uint64_t fixed_bytes = 0;     // on the card now that cannot be swapped, contexts excluded
  // Whether its GPU could reach memory that the host holds for good, and whether that is granted.
  uint8_t oversubscribes = 0;
  static constexpr uint8_t kCan = 1, kDoes = 2;  // the latter by a daemon that is gone
  uint8_t spills = 0;  // 1: to a file, if it gets one with Registered, behind the pages
  // Uuid of the GPU where the process had its session until it obeyed Move; empty: of none. All
  // that the session had there is on this GPU now.
  std::string moved_from = {};
  auto Fields() {
    return std::tie(build, run, device, program, allocated_bytes, resident_bytes, contexts,
                    suspended, fixed_bytes, oversubscribes, spills, moved_from);
  }
};

// "My allocations shall come to total_bytes." Answered by Reserved unless they shrink.
struct Reserve {
  static constexpr uint16_t kType = 2;
  uint64_t sequence = 0;
  uint64_t total_bytes = 0;
  auto Fields() { return std::tie(sequence, total_bytes); }
};

// "I am about to create a context." Answered by ContextReserved, at once or when there is room.
struct ContextWanted {
  static constexpr uint16_t kType = 3;
  auto Fields() { return std::tie(); }
};

// A context was destroyed, or could not be created after all.
struct ContextGone {
  static constexpr uint16_t kType = 4;
  auto Fields() { return std::tie(); }
};

// "I have work, and need_bytes must be on the card for it." From a holder: it has grown.
struct Ready {
  static constexpr uint16_t kType = 5;
  uint64_t need_bytes = 0;
  auto Fields() { return std::tie(need_bytes); }
};

// The gate is open: everything needed is on the card, bytes_in of it copied there for this lease.
struct Running {
  static constexpr uint16_t kType = 6;
  uint64_t epoch = 0;
  uint64_t bytes_in = 0;
  auto Fields() { return std::tie(epoch, bytes_in); }
};

// All submitted work is done and nothing new has come.
struct Idle {
  static constexpr uint16_t kType = 7;
  uint64_t epoch = 0;
  auto Fields() { return std::tie(epoch); }
};

// New work after Idle, under the same lease.
struct Active {
  static constexpr uint16_t kType = 8;
  uint64_t epoch = 0;
  auto Fields() { return std::tie(epoch); }
};

// The answer to Revoke: gate closed, work drained, the lease is given back.
struct Released {
  static constexpr uint16_t kType = 9;
  uint64_t epoch = 0;
  auto Fields() { return std::tie(epoch); }
};

// The other answer to Revoke: not drained by the deadline; the gate is open again. With epoch 0 an
// answer to Evict: what is under way from before does not end without the card.
struct Busy {
  static constexpr uint16_t kType = 10;
  uint64_t epoch = 0;
  auto Fields() { return std::tie(epoch); }
};

// "resident_bytes of mine are on the card, and I give up credit above that." Sent chunk by chunk
// while obeying Evict, and unasked when memory was freed.
struct Evicted {
  static constexpr uint16_t kType = 11;
  uint64_t resident_bytes = 0;
  uint64_t copied_bytes = 0;  // copied to the host since the last Evicted
  static constexpr size_t kRequired = 2;
  uint64_t to_file_bytes = 0;  // of them, to the session's file
  auto Fields() { return std::tie(resident_bytes, copied_bytes, to_file_bytes); }
};

// "I am about to take bytes that cannot be swapped." Answered by FixedReserved, at once or when
// there is room. They count for the limit.
struct FixedWanted {
  static constexpr uint16_t kType = 12;
  static constexpr uint16_t kSince = 3;
  uint64_t sequence = 0;
  uint64_t bytes = 0;
  auto Fields() { return std::tie(sequence, bytes); }
};

// These bytes of fixed memory are free again, or could not be taken after all.
struct FixedGone {
  static constexpr uint16_t kType = 13;
  static constexpr uint16_t kSince = 3;
  uint64_t bytes = 0;
  auto Fields() { return std::tie(bytes); }
};

// An offer's memory is gone: no process can open it any more.
struct Withdraw {
  static constexpr uint16_t kType = 14;
  static constexpr uint16_t kSince = 4;
  uint64_t token_high = 0;
  uint64_t token_low = 0;
  auto Fields() { return std::tie(token_high, token_low); }
};

// More of what a lease needs has come onto the card. Sent chunk by chunk until Running.
struct Restored {
  static constexpr uint16_t kType = 15;
  static constexpr uint16_t kSince = 10;
  uint64_t epoch = 0;
  uint64_t resident_bytes = 0;
  uint64_t copied_bytes = 0;     // copied from the host since the last Restored
  uint64_t from_file_bytes = 0;  // of them, from the session's file
  auto Fields() { return std::tie(epoch, resident_bytes, copied_bytes, from_file_bytes); }
};

// What the program says of the work it is about to do (tandem.h): how long it takes, of what class
// it is, and how much memory it will have, which the next Ready may name. Holds until it says
// otherwise.
struct Declare {
  static constexpr uint16_t kType = 16;
  static constexpr uint16_t kSince = 12;
  static constexpr uint8_t kOfRun = 255;
  uint64_t burst_us = 0;      // 0: not said
  uint8_t of_class = kOfRun;  // by its number, kClassNames; kOfRun: as the run's
  uint64_t memory_bytes = 0;  // 0: what it has allocated
  auto Fields() { return std::tie(burst_us, of_class, memory_bytes); }
};

// "I wait for the lease no longer." Nothing where it has been granted meanwhile.
struct NotReady {
  static constexpr uint16_t kType = 18;
  static constexpr uint16_t kSince = 12;
  auto Fields() { return std::tie(); }
};

// "My memory may leave the card, though no session needs the room."
struct Leave {
  static constexpr uint16_t kType = 17;
  static constexpr uint16_t kSince = 12;
  auto Fields() { return std::tie(); }
};

// The other answer to Move, beside a registration on the GPU it names: nothing has changed, and
// why.
struct NotMoved {
  static constexpr uint16_t kType = 19;
  static constexpr uint16_t kSince = 13;
  std::string reason;
  auto Fields() { return std::tie(reason); }
};

// The classes of work, in the order of their numbers.
inline constexpr const char* kClassNames[] = {"production", "interactive", "batch",
                                              "opportunistic"};

// ---- The daemon, to a session

// Comes with two file descriptors: the decisions page and the reports page (pages.h).
struct Registered {
  static constexpr uint16_t kType = 32;
  uint64_t card_bytes = 0;
  uint64_t limit_bytes = 0;  // what this session's run may allocate
  uint64_t chunk_bytes = 0;  // the unit of swapping
  auto Fields() { return std::tie(card_bytes, limit_bytes, chunk_bytes); }
};

struct Reserved {
  static constexpr uint16_t kType = 33;
  uint64_t sequence = 0;
  uint8_t granted = 0;
  auto Fields() { return std::tie(sequence, granted); }
};

// Answers to ContextWanted, in their order. Not granted: a context would not fit beside what the
// session itself has allocated and the contexts that there are, or others need the room too long.
struct ContextReserved {
  static constexpr uint16_t kType = 34;
  uint8_t granted = 0;
  auto Fields() { return std::tie(granted); }
};

// The lease. The session may have up to credit_bytes on the card, and opens its gate once all it
// needs is there.
struct Grant {
  static constexpr uint16_t kType = 35;
  uint64_t epoch = 0;
  uint64_t credit_bytes = 0;
  uint64_t window_us = 0;  // how much work may be in flight
  auto Fields() { return std::tie(epoch, credit_bytes, window_us); }
};

// The credit has grown to credit_bytes.
struct Credit {
  static constexpr uint16_t kType = 36;
  uint64_t credit_bytes = 0;
  auto Fields() { return std::tie(credit_bytes); }
};

// Close the gate, drain, answer Released; or Busy when that takes longer than deadline_us.
struct Revoke {
  static constexpr uint16_t kType = 37;
  uint64_t epoch = 0;
  uint64_t deadline_us = 0;
  auto Fields() { return std::tie(epoch, deadline_us); }
};

// The credit has fallen to target_bytes: swap out until no more than that is on the card.
// Only ever sent to a session that holds no lease.
struct Evict {
  static constexpr uint16_t kType = 38;
  uint64_t target_bytes = 0;
  auto Fields() { return std::tie(target_bytes); }
};

// Not granted: it is above the limit, or would not fit beside what the session itself has allocated
// and all else that cannot be swapped, or others need the room too long.
struct FixedReserved {
  static constexpr uint16_t kType = 39;
  static constexpr uint16_t kSince = 3;
  uint64_t sequence = 0;
  uint8_t granted = 0;
  auto Fields() { return std::tie(sequence, granted); }
};

// Another session waits for this GPU, or `refuses` has changed: as the decisions page says.
struct Contended {
  static constexpr uint16_t kType = 40;
  static constexpr uint16_t kSince = 6;  // older ones look from time to time
  auto Fields() { return std::tie(); }
};

// The user has ended the wait (EndWait): the program dies of SIGINT if it still waits, unless it
// ignores that signal.
struct EndProgram {
  static constexpr uint16_t kType = 41;
  static constexpr uint16_t kSince = 11;
  auto Fields() { return std::tie(); }
};

// Leave this GPU with all you have, register on the one with that uuid. Only ever sent to a
// suspended session with nothing on the card that can be swapped.
struct Move {
  static constexpr uint16_t kType = 42;
  static constexpr uint16_t kSince = 13;
  std::string device;
  auto Fields() { return std::tie(device); }
};

// ---- A program that has a session, beside it

// "This memory of mine is for my user's other processes", with a descriptor of it; the token, which
// cannot be guessed, is the offerer's choice. Answered by Offered. It ends with the session that
// the process has on that GPU.
struct Offer {
  static constexpr uint16_t kType = 72;
  static constexpr uint16_t kSince = 4;
  uint64_t token_high = 0;
  uint64_t token_low = 0;
  std::string device;  // uuid of the GPU, as FormatUuid prints it
  auto Fields() { return std::tie(token_high, token_low, device); }
};

struct Offered {
  static constexpr uint16_t kType = 73;
  static constexpr uint16_t kSince = 4;
  auto Fields() { return std::tie(); }
};

// Asks for what another process of the same user has offered. Answered by Fetched, with the
// descriptor, or by Refused.
struct Fetch {
  static constexpr uint16_t kType = 74;
  static constexpr uint16_t kSince = 4;
  uint64_t token_high = 0;
  uint64_t token_low = 0;
  auto Fields() { return std::tie(token_high, token_low); }
};

struct Fetched {
  static constexpr uint16_t kType = 75;
  static constexpr uint16_t kSince = 4;
  auto Fields() { return std::tie(); }
};

// ---- Either way

// The request cannot be met, and why, for people. After a version mismatch or a breach of the
// protocol the daemon closes the connection.
struct Refused {
  static constexpr uint16_t kType = 127;
  uint16_t version = kVersion;  // of who refuses
  uint16_t code = 0;            // RefusalCode
  std::string reason;
  auto Fields() { return std::tie(version, code, reason); }
};

enum class RefusalCode : uint16_t {
  kVersion = 1,   // the two sides speak different versions
  kProtocol = 2,  // garbage, or a message out of place
  kUnknownDevice = 3,
  kLimitTooLarge = 4,  // above the budget
  kTooMany = 5,        // sessions or offers of this user
  kUnknownTarget = 6,  // no session, run or offer is called that, or more than one
  kNotYours = 7,       // it is another user's
  kHostFull = 8,       // the host has no room for what would leave the card
  kNoSession = 9,      // the process has none there, or none yet
};

template <typename Kind, typename Kinds>
inline constexpr bool kIsKindOf = false;
template <typename Kind, typename... Kinds>
inline constexpr bool kIsKindOf<Kind, std::variant<Kinds...>> = (std::is_same_v<Kind, Kinds> ||
                                                                 ...);

using AnyKind =
    std::variant<Register, Reserve, ContextWanted, ContextGone, Ready, Running, Restored, Idle,
                 Active, Released, Busy, Evicted, FixedWanted, FixedGone, Declare, NotReady, Leave,
                 NotMoved, Move, FixedReserved, Registered, Reserved, ContextReserved, Grant,
                 Credit, Revoke, Evict, Contended, EndProgram, RunBegin, WatchWaits, Waiting,
                 EndWait, RunStarted, Query, Answer, Control, RunChanged, RunQuery, RunShown,
                 Withdraw, Offer, Offered, Fetch, Fetched, Refused>;

// A message of any kind. Only messages.cc copies, moves and destroys one: with a plain
// std::variant, each file that does so compiles tables of all kinds, which took an eighth of the
// whole build.
class Message : public AnyKind {
 public:
  template <typename Kind>
  requires kIsKindOf<Kind, AnyKind> Message(Kind kind);  // NOLINT: implicit
  Message(const Message&);
  Message(Message&&) noexcept;
  Message& operator=(const Message&);
  Message& operator=(Message&&) noexcept;
  ~Message();

  // The first version that has the message.
  uint16_t SinceVersion() const;
};

}  // namespace tandem::wire
