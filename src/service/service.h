// Service: connections, sessions and runs around one arbiter per GPU. Decoded messages, the peer's
// identity and the time go in; messages with their receivers come out. No sockets here.
//
// A connection becomes a session's with Register and people's (`tandem`) with RunBegin, Query or
// Control; a message out of place is answered by Refused, and that one connection is closed. A
// session outlives its connection: only the end of its process ends it, since only that frees its
// memory.
//
// A daemon that was killed leaves what it granted to each session (saved_sessions.h). The next one
// begins with these sessions, without connections, and gives them kSettling to come back before it
// decides anything. Until then it takes only Register and RunBegin of programs that were there, and
// answers Query; everything else is held and comes to its turn afterwards.
// Where nothing was left and a card is in use, what looks like other programs' memory may be
// sessions': they have the same time, and are believed up to that. Programs of a run whose `tandem
// run` is not back yet are held in any case, up to kRunPatience: the run's limit is not known.
//
// Threading: none; the caller serialises.
// Invariants
// 1. What a session is charged for is given back at the end of its process and never before.
// 2. Nothing a client says about who it is is believed: pid and uid come with the connection.
// 3. One user has at most kMaxSessionsPerUser sessions.
// 4. Of each session's connection at most kMaxHeld messages are held, of others kMaxHeldOfOthers.
// 5. Only its own user and root give orders about a session or a run, and see the run's token; only
//    root and the daemon's own user give orders about a GPU.
// 6. Memory that is offered is handed to its own user only, and let go of at the end of the process
//    that has offered it, before what that was charged for is given back.
#pragma once

#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/base/unique_fd.h"
#include "src/core/arbiter.h"
#include "src/history/record.h"
#include "src/service/card_use.h"
#include "src/service/leases.h"
#include "src/service/log_rate.h"
#include "src/service/pages.h"
#include "src/service/saved_sessions.h"
#include "src/service/spill.h"
#include "src/wire/messages.h"

namespace tandem::service {

struct LimitOrder;
struct Standing;
struct Surroundings;

inline constexpr size_t kMaxSessionsPerUser = 256;
inline constexpr size_t kKeptHandovers = 4096;
inline constexpr uint64_t kMostCards = 16;  // that a run may have the memory of, oversubscribing
inline constexpr size_t kMaxHeld = 256;
inline constexpr size_t kMaxOffersPerUser = 1024;  // a descriptor each
inline constexpr size_t kMaxHeldOfOthers = 8;      // who wait for an answer to each
// Sessions without a daemon look for one ten times a second.
inline constexpr Duration kSettling = Seconds(1);
// How long after its start a program of a run waits for its `tandem run` to come back with the
// limit. Less than a program waits for the answer to its Register.
inline constexpr Duration kRunPatience = Seconds(4);
// How long what would be refused for the memory of other programs waits for the card to say whether
// that is still there.
inline constexpr Duration kMeasurementPatience = Seconds(1);

struct GpuInfo {
  int index = 0;
  std::string uuid;
  std::string name;
  bool software = false;
  Bytes card;
  Bytes foreign;  // in use when the daemon started
  Bytes context;  // measured footprint of one context
  Bytes chunk;
  uint32_t reserved_contexts = 4;
};

// The card less room for the reserved contexts, one chunk and what others hold.
Bytes BudgetOf(const GpuInfo& gpu, Bytes foreign);

struct ServiceConfig {
  std::string version;
  std::string socket;
  int pid = 0;
  unsigned uid = 0;  // of the daemon
  Instant started;
  std::vector<GpuInfo> gpus;
  std::function<uint64_t()> random_token;
  // What the clock on the wall shows at instant 0, as it is set now; in nanoseconds of Unix time.
  std::function<int64_t()> unix_ns_at_zero = {};
  core::TurnRules turns = {};
  std::string policy = core::ArbiterConfig().policy;  // of all GPUs, until an order changes it
  Duration fixed_wait = core::ArbiterConfig().fixed_wait;
  Duration longest_block = core::ArbiterConfig().longest_block;
  // A line for the log: sessions that come and go, and orders.
  std::function<void(const std::string& line)> note = {};
  std::function<void(history::Record)> record = {};  // for the event log and the accounts
  std::string events_file = {}, accounts_file = {};  // empty: there is none
  // Of the buses, until something is measured.
  double assumed_bytes_per_second = core::ArbiterConfig().bytes_per_second;
  std::optional<uint64_t> chaos_seed = std::nullopt;  // for tests: chaos.h
  // Of the host, for what may have to leave the cards.
  Bytes host_memory = Bytes(std::numeric_limits<uint64_t>::max());
  // That is what was free at the start: without what sessions from before had already.
  bool host_memory_measured = false;
  bool shares_host_memory = false;  // between users: core::HostLimits::ShareAmongUsers
  std::function<Bytes()> available_host_memory = {};  // now; as core::HostLimits
  Spill spill = {};                                   // for what that has no room for
  // Closes what this user had sent. It may take long, and so had better not be done here.
  std::function<void(UniqueFd memory, unsigned uid)> let_go = {};
  bool measures = false;                      // OnMeasured is called where WantsMeasurement says so
  std::unique_ptr<SavedSessions> saved = {};  // null: the next daemon finds nothing
  // Leases: how they are kept, those kept by the daemon before, and whether a program needs one.
  Leases::Keep keep_leases = {};
  std::string kept_leases = {};
  bool leases_only = false;
  std::function<std::string(int pid)> cgroups_of = {};             // as /proc/PID/cgroup has them
  std::function<bool(const std::string& cgroup)> has_cgroup = {};  // whether it exists
};

using ConnectionId = uint64_t;

struct Client {
  int pid = 0;
  unsigned uid = 0;
  bool predates_daemon = false;  // so it may have memory from before a restart
  uint64_t started_ticks = 0;    // as the kernel counts; with the pid it names the process
  unsigned gid = 0;
};

struct Outgoing {
  ConnectionId to = 0;
  std::optional<wire::Message> message;
  std::vector<int> fds;  // with the message; owned by the service
  bool close = false;    // once the message is sent
  UniqueFd memory = {};  // with the message, too
  int end_process = 0;   // kill this one, whatever the connection; 0: none
};

// A process to end, and why.
struct Offender {
  int pid = 0;
  std::string reason;
};

// The hint where the sender may choose to oversubscribe.
inline constexpr char kOversubscribeHint[] =
    "; `tandem run --oversubscribe` may have more, which is much slower";

class Service {
 public:
  Service(ServiceConfig config, std::unique_ptr<PageMaker> pages);
  ~Service();

  void OnConnected(ConnectionId connection, const Client& client);
  // `memory`: a descriptor of memory of a GPU that came with it, if any.
  std::vector<Outgoing> OnMessage(ConnectionId connection, const wire::Message& message,
                                  Instant now, UniqueFd memory = {});
  // The stream broke: says why and closes.
  std::vector<Outgoing> OnBroken(ConnectionId connection, const Error& error);
  std::vector<Outgoing> OnDisconnected(ConnectionId connection, Instant now);
  std::vector<Outgoing> OnProcessGone(int pid, Instant now);
  std::vector<Outgoing> OnTick(Instant now);
  // The daemon ends: records what its sessions have used.
  void OnEnding(Instant now);

  // Whether to ask the cards now what is in use there. OnMeasuring: that is under way.
  bool WantsMeasurement(Instant now) const;
  void OnMeasuring(Instant now);
  std::vector<Outgoing> OnMeasured(const CardUses& uses, Instant now);

  // What Spill::ask was asked for; empty: there is no file.
  std::vector<Outgoing> OnSpillFile(ConnectionId connection, UniqueFd file, Instant now);
  // Which processes have files that hold more than they may.
  std::vector<Offender> OnSpillSizes(const SpillSizes& sizes, Instant now);

  // When to call OnTick next, or to measure.
  std::optional<Instant> wake() const;
  // Processes whose end matters.
  bool HasSessions(int pid) const;
  bool registered(ConnectionId connection) const;  // has said what it is
  bool serves_software_gpu() const;
  bool idle() const { return sessions_.empty() && connections_.empty(); }

 private:
  struct Run;
  struct Seat;
  struct Gpu;
  struct Connection;
  // Who is meant by an order: one session, or a run with the sessions it has.
  struct Target;
  struct Offered;
  struct Watch;
  // Of the cgroup of a lease's job.
  struct LeaseWatch {
    Instant since;
    bool seen = false;  // it existed
  };
  using RunKey = std::pair<unsigned, uint64_t>;  // uid and token: no user joins another user's run
  using OfferKey = std::pair<uint64_t, uint64_t>;

  void Take(Connection& from, const wire::Message& message, UniqueFd& memory);
  bool MustWait(const Connection& from, const wire::Message& message) const;
  void EndSettling();
  void ReleaseHeld();
  void Dispatch(Connection& from, const wire::Message& message);
  void Handle(Connection& from, const wire::Query& m);
  template <typename M>
  void HandleSession(Connection& from, const M& m);
  void Feed(Gpu& gpu, const core::Event& event);
  void StartChaos(Gpu& gpu);
  // One for each kind of action (actions.cc).
  void Apply(Gpu& gpu, const core::action::Grant& action);
  void Apply(Gpu& gpu, const core::action::Credit& action);
  void Apply(Gpu& gpu, const core::action::Revoke& action);
  void Apply(Gpu& gpu, const core::action::Evict& action);
  void Apply(Gpu& gpu, const core::action::ContextReserved& action);
  void Apply(Gpu& gpu, const core::action::FixedReserved& action);
  void Apply(Gpu& gpu, const core::action::Reserved& action);
  void Apply(Gpu& gpu, const core::action::HostFull& action);
  void Apply(Gpu& gpu, const core::action::SetContended& action);
  void Apply(Gpu& gpu, const core::action::HandoverDone& action);
  void Apply(Gpu& gpu, const core::action::WakeAt& action);
  void Apply(Gpu& gpu, const core::action::Breach& action);
  void Apply(Gpu& gpu, const core::action::Overdue& action);
  void Note(const std::string& line) const;
  void NoteOf(unsigned uid, const std::string& line);
  std::string Describe(const Seat& seat) const;
  void Refuse(ConnectionId to, wire::RefusalCode code, std::string reason, bool close);
  void SendTo(core::SessionId session, wire::Message message);
  void Remove(core::SessionId session, bool tell_arbiter);
  void UpdatePages(Gpu& gpu);
  bool UpdatePage(const Gpu& gpu, const core::Session& session);
  Bytes BudgetShown(const Gpu& gpu) const;
  core::SessionId NextSession();

  // Programs that register (registration.cc).
  void Handle(Connection& from, const wire::Register& m);
  void Enrol(Connection& from, const wire::Register& m);
  std::unique_ptr<Seat> MakeSeat(const Connection& from, const wire::Register& m, Gpu* gpu,
                                 const Seat* old);
  static bool DoesOversubscribe(const Seat& seat);
  void StartSuspended(const Seat& seat);
  void Replace(Seat& old, Seat& seat, core::event::SessionAdded* added);
  void GiveUpSeat(Seat& seat);
  void SendRegistered(Connection& to, const Gpu& gpu, const core::event::SessionAdded& added);

  // Memory of programs outside Tandem (measure.cc).
  void MeasureWithin(Duration pause);
  void MeasureAfterAnEnd();
  void MeasureWhileWaiting(const Gpu& gpu);
  bool NeedsMeasurement(const Connection& from, const wire::Message& message);
  void AwaitMeasurement(Connection& from);
  void EndAwaitingMeasurement();
  std::optional<CardUse::Range> UsedBySessions(const Gpu& gpu, const CardUse& use) const;
  void CountForeign(Gpu& gpu, const CardUse& use);
  void NoteHealth(Gpu& gpu, bool answers);

  // Sessions of the daemon before (restore.cc).
  void RestoreSessions();
  void Restore(SavedSession* saved);
  bool KnowsAllFromBefore() const;
  bool MayEndSettling() const;
  bool AddSaved(Seat& seat) const;
  void Save(const Seat& seat) const;
  static void Believe(Gpu& gpu, core::event::SessionAdded* claims);
  static void CountAsNotForeign(Gpu& gpu, core::event::SessionAdded* claims);

  Gpu* FindGpu(const std::string& uuid);
  Seat* FindSeat(const Client& client, const Gpu& gpu);
  size_t SessionsOf(unsigned uid) const;

  // Runs (runs.cc).
  Run& FindRun(unsigned uid, uint64_t token);
  void Handle(Connection& from, const wire::RunBegin& m);
  void Handle(Connection& from, const wire::RunQuery& m);
  Bytes MostShared() const;
  std::optional<core::Class> ClassOf(const Connection& from, const wire::RunBegin& m);
  // `hint`: another way to have more; may be empty.
  bool RefuseTooLarge(const Connection& from, Bytes limit, bool oversubscribes,
                      const std::string& hint);
  Bytes LimitOn(const Gpu& gpu, const Run& run, bool oversubscribes) const;
  void ApplyLimit(const Run& run);
  void TellOwner(const Run& run);
  bool AwaitsItsRun(const Connection& from, const wire::Message& message) const;
  void JoinRun(const Connection& from, const wire::Register& m, const Seat* old, Seat& seat,
               core::event::SessionAdded& added);
  bool StartsSuspended(const wire::Register& m, const Seat* old, Seat& seat,
                       const core::event::SessionAdded& claims) const;
  void SuspendFollowers(const RunKey& key);

  // Orders (control.cc).
  void Handle(Connection& from, const wire::Control& m);
  void Obey(Connection& from, const wire::Control& m);
  std::vector<Seat*> SeatsOf(const RunKey& run) const;
  std::vector<Target> FindTargets(const std::string& text) const;
  std::optional<Target> ChooseTarget(const Connection& from, const std::string& text);
  void RefuseAmbiguous(const Connection& from, const std::string& shown,
                       const std::vector<Target>& targets);
  // `refuses_at`: of a lease, when its calls begin to fail; none: they wait.
  void Suspend(const Target& target, bool suspended, unsigned by,
               std::optional<Instant> refuses_at);
  void Limit(const Target& target, Bytes limit, unsigned by);
  bool RefuseToLift(const Connection& from, const Target& target, const wire::Control& m);
  const std::optional<LimitOrder>& LimitedBy(const Seat& seat) const;

  // Leases of engines (lease_orders.cc).
  void TakeKeptLeases();
  void OpenLease(const Lease& lease);
  void CreateLease(Connection& from, const wire::Control& m);
  void EndLease(Connection& from, const wire::Control& m);
  std::map<int, Bytes> SharedBytes() const;
  std::vector<core::SessionId> CloseLease(const Lease& ended);
  bool RefuseWithoutLease(const Connection& from, const Gpu& gpu, const wire::Register& m);
  void EndLeasesOfGoneJobs();
  void KeepSuspension(const RunKey& key);
  void RefuseCallsThatWait();
  std::string LeasesJson(const Connection& from) const;

  // Leases that go to another GPU (lease_moves.cc).
  void MoveLease(Connection& from, const wire::Control& m);
  std::string WhyNotMoved(const Lease& lease, const std::vector<Seat*>& elsewhere);
  void KeepToItsGpus(const Lease& lease);
  void GoOnMoving(Seat& seat, Gpu& to);
  void EndMove(Seat& seat);
  static std::string WhyLate(const Seat& seat);
  void EndLateMoves();
  void Handle(Connection& from, const wire::NotMoved& m);
  Seat* LeftBy(const Connection& from, const wire::Register& m);
  uint64_t TokenOf(const Connection& from, const wire::Register& m);
  void LetLeaseFollow(const Seat& seat);
  void TakeOver(Seat& left, Seat& seat, core::event::SessionAdded* added);

  // Shares of the time (shares.cc).
  void SetShare(Connection& from, const wire::Control& m);
  core::Share FirstShare(const Seat* old, const Seat& seat) const;
  static core::ShareKey KeyOf(const Seat& seat);
  static core::Share UserShare(const core::Arbiter& arbiter, const Seat& seat);

  // Orders about GPUs (gpu_control.cc).
  bool MayRule(const Connection& from) const;
  std::vector<Gpu*> FindGpus(const std::string& text) const;
  void SetPolicy(Connection& from, const wire::Control& m);

  // The host (host.cc).
  bool AwaitSpillFile(Connection& from, const Gpu& gpu, const wire::Register& m);
  void EndSpillFiles(int pid) const;
  bool RefuseForHost(const Connection& from, const std::vector<Seat*>& seats);
  std::string HostLimitText() const;

  // Memory for other processes (offers.cc).
  void Handle(Connection& from, const wire::Offer& m);
  void Handle(Connection& from, const wire::Withdraw& m);
  void Handle(Connection& from, const wire::Fetch& m);
  void LetGo(UniqueFd memory, unsigned uid);
  void DropOffers(core::SessionId session);

  // Waits, told to those who watch (waits.cc).
  void Handle(Connection& from, const wire::WatchWaits& m);
  void Handle(Connection& from, const wire::EndWait& m);
  void Handle(Connection& from, const wire::Declare& m);
  core::Class ClassOf(const Seat& seat) const;
  Bytes MostNeeded(const Seat& seat) const;
  static bool Watches(const Connection& connection, const Seat& seat);
  void TellWaits();
  void TellWait(Connection& to, const wire::Waiting& waiting);
  void EndWaits();
  void ExpectWaits(const Gpu& gpu);
  void TellEnded(const Seat& seat);
  wire::Waiting WaitOf(const Seat& seat, const Standing& standing) const;

  // Records of what happens (recording.cc).
  void Record(decltype(history::Record::what) what) const;
  void RecordStart() const;
  void RecordIdentity(Seat& seat) const;
  void RecordEvent(const Gpu& gpu, const core::Event& event) const;
  void RecordEviction(const Gpu& gpu, const core::Event& event) const;
  void RecordAction(const Gpu& gpu, const core::Action& action) const;
  void RecordUsage(Seat& seat, const Surroundings& around, bool last);
  void RecordUsages();
  void ExpectUsage();
  history::Usage TotalsOf(const Seat& seat, const Surroundings& around) const;
  int64_t UnixNs(Instant instant) const;

  // Answers (answers.cc, sessions_answer.cc).
  std::string StatusJson() const;
  std::string SessionsJson(unsigned viewer) const;
  Surroundings SurroundingsOf(const Gpu& gpu) const;
  nlohmann::json StandingJson(const Seat& seat, const Surroundings& around) const;
  nlohmann::json MemoryJson(const Seat& seat) const;
  std::string NameOf(const Seat& seat) const;
  std::vector<core::SessionId> HoldersOf(const Gpu& gpu) const;
  std::string TimeText(Instant instant) const;  // RFC 3339
  std::string HandoversJson() const;
  std::string OrderJson(const std::vector<core::SessionId>& ids) const;

  ServiceConfig config_;
  std::unique_ptr<PageMaker> pages_;
  core::HostLimits host_;
  std::vector<std::unique_ptr<Gpu>> gpus_;
  std::map<ConnectionId, std::unique_ptr<Connection>> connections_;
  std::map<core::SessionId, std::unique_ptr<Seat>> sessions_;
  std::map<RunKey, Run> runs_;
  Leases leases_;
  std::optional<Instant> leases_at_;  // then jobs are looked for whose leases may end
  std::map<std::string, LeaseWatch> lease_watches_;  // by job
  std::optional<Instant> refusals_at_;  // then calls of a suspended lease's programs begin to fail
  std::optional<Instant> moves_at_;     // then moves to other GPUs that have not ended are given up
  std::map<OfferKey, Offered> offers_;
  std::deque<std::pair<int, core::Handover>> handovers_;  // with the GPU's index
  std::optional<Instant> settles_at_;
  std::deque<std::pair<ConnectionId, wire::Message>> held_;
  std::optional<Instant> usage_at_;  // then what sessions have used is recorded
  std::optional<Instant> waits_at_;  // then those who watch are told of waits
  std::set<ConnectionId> watchers_;  // those that asked to be told
  std::set<ConnectionId> told_;      // of them, those told of a wait that is not over
  LogRate log_rate_;
  std::optional<Instant> measure_at_;  // the next time
  bool measured_ = false;
  std::optional<Instant> awaits_measurement_since_;  // messages that are held do
  Instant last_measured_;
  std::optional<Instant> last_end_;  // of a session
  uint64_t last_session_ = 0;
  uint64_t last_run_ = 0;
  uint64_t runs_revision_ = 0;  // of which sessions runs have, and of their limits

  // Of the call that is being served.
  Instant now_;
  std::vector<Outgoing> out_;
  UniqueFd memory_;  // that came with the message being dispatched
};

// `text` with control characters, and what is not UTF-8, spelled out, and cut: safe to show.
std::string Printable(const std::string& text);

}  // namespace tandem::service
