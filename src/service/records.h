// What the service keeps about runs, sessions, GPUs and connections. For service.cc and answers.cc.
#pragma once

#include "src/service/chaos.h"
#include "src/service/service.h"
#include "src/service/spill_quota.h"

namespace tandem::service {

// More than a process can have; also keeps the sums far from overflowing.
inline constexpr uint32_t kMostContexts = 64;

// Who has set a limit by an order, and when.
struct LimitOrder {
  unsigned by = 0;  // uid
  Instant at;
};

struct Service::Run {
  core::RunId id;
  std::string name;
  Bytes limit;
  ConnectionId owner = 0;  // `tandem run`; 0: unknown, e.g. from before a restart
  int sessions = 0;
  bool suspended = false;                // so are the sessions it gets
  std::optional<unsigned> suspended_by;  // uid, where it is known
  // While it is suspended: when its calls begin to fail instead of waiting, and that they do.
  std::optional<Instant> refuses_at;
  bool refuses = false;
  std::optional<LimitOrder> limited;
  std::string program;
  Instant started;
  Instant unused_since;  // where it has no sessions
  bool oversubscribes = false;
  core::Class of_class = core::Class::kInteractive;
  std::optional<core::Share> share;  // of each of its sessions
  bool leased = false;               // it is a lease's (leases.h), and lasts as long as that
  bool ended = false;                // its lease has: no process joins it
  bool open() const { return owner != 0 || leased; }
  // Whether this daemon has been told them, by an order or by `tandem run`: what that says when it
  // comes back is older.
  bool limit_known = false;
  bool suspension_known = false;
};

// What the pages of all sessions of a GPU depend on.
struct PageBasis {
  Bytes budget, most_resident, immovable, excess, host_limit;
  uint64_t runs = 0;  // Service::runs_revision_
  bool operator==(const PageBasis&) const = default;
};

struct Service::Gpu {
  Gpu(const GpuInfo& info, const core::ArbiterConfig& config)
      : info(info),
        foreign(info.foreign),
        foreign_noted(info.foreign),
        claimable(info.foreign),
        arbiter(config) {}

  // What sessions may have together.
  Bytes budget() const { return BudgetOf(info, foreign + awaited); }

  GpuInfo info;
  Bytes foreign;
  Bytes foreign_noted;    // the last that the log has
  Bytes awaited;          // by processes that are about to move here (lease_moves.cc)
  Bytes claimable;        // in use at the start, and claimed by no session yet
  bool measured = false;  // the driver has told its use at least once
  bool healthy = true;    // it told that the last time, too
  core::Arbiter arbiter;
  std::optional<Instant> wake;
  std::optional<Chaos> chaos;  // for tests
  std::optional<PageBasis> shown;
  uint64_t handovers = 0;
  Bytes out;
  Bytes in;
};

struct Service::Seat {
  core::SessionId id;
  Gpu* gpu = nullptr;
  ConnectionId connection = 0;  // 0: lost, and its process lives
  Client client;
  std::string program;
  Instant started;
  std::optional<unsigned> suspended_by;  // uid, where it is known
  std::optional<LimitOrder> limited;     // where it has no run
  std::optional<RunKey> run;
  core::RunId core_run;  // of `run`, or its own where it has none
  // By its own word (wire::Declare): the class of its work, where it may have that, and the memory
  // that it will have.
  std::optional<core::Class> declared_class;
  Bytes declared_memory;
  bool follows_run = false;  // once it is known whether that is suspended, so is this
  std::unique_ptr<SessionPages> pages;
  SavedSession* saved = nullptr;  // where the next daemon finds it; null: nowhere
  SpillQuota spill_quota;
  std::shared_ptr<const history::SessionIdentity> identity;  // null: nothing is recorded
  history::Usage recorded;                                   // what it had used by then, in all
  // To another GPU, by an order.
  struct Move {
    Gpu* to = nullptr;
    Bytes room;         // that is kept for it there
    bool told = false;  // the process, that it is to move
    Instant until;      // then it is given up
  };
  std::optional<Move> move;
  std::string stays;       // why the last one failed
  uint64_t handovers = 0;  // that were for it
  Bytes out;
  Bytes in;
};

struct Service::Target {
  unsigned uid = 0;
  std::optional<RunKey> run;  // that it is, or that the session belongs to
  bool whole_run = false;
  std::vector<Seat*> seats;
};

struct Service::Offered {
  core::SessionId by;
  unsigned uid = 0;
  UniqueFd memory;
};

// Who is told of waits (waits.cc).
struct Service::Watch {
  std::optional<RunKey> run;          // none: the sessions of the asking process
  std::optional<wire::Waiting> told;  // last; none: that nothing waits
};

struct Service::Connection {
  enum class Role { kNew, kSession, kPeople };
  ConnectionId id = 0;
  Client client;
  Role role = Role::kNew;
  Seat* seat = nullptr;             // kSession; null once the session has moved or ended
  std::optional<RunKey> run;        // kPeople, after RunBegin
  size_t held = 0;                  // messages
  std::optional<Watch> watch;       // kPeople
  bool awaits_measurement = false;  // its messages are held until then
  // Of what its Register needs: it is held until the answer comes.
  bool awaits_file = false;
  std::optional<UniqueFd> spill_file;  // none: not asked for; empty: there is none
};

// Whose its sessions are.
core::Tenant TenantOf(const Client& client);

}  // namespace tandem::service
