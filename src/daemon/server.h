// Server: the daemon's loop. Connects sockets, process ends, signals and time with the service.
//
// Threading: one thread, which nothing a client does can block. Signals that end it (SIGTERM,
// SIGINT), and SIGHUP, must be blocked by the caller where it passes `signals`.
// Invariants
// 1. At most `max_connections` connections, of which at most `max_newcomers` have not yet said what
//    they are, each of those for at most `newcomer_patience`.
// 2. One user has at most `max_connections_per_user` of them, and where there are too many
//    newcomers the user with the most loses one. What clients are sent and do not read is bounded
//    for each user, too.
// 3. The messages of one user get about kShareOfRound of each round; later ones wait in the
//    sockets. So a client waits for no more than that of every other user.
// 4. The end of a session is the end of its process, seen through a pidfd that was opened while the
//    process was connected.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "src/base/time.h"
#include "src/base/unique_fd.h"
#include "src/daemon/connection.h"
#include "src/daemon/listener.h"
#include "src/daemon/meter.h"
#include "src/daemon/spill_store.h"
#include "src/service/service.h"

namespace tandem::daemon {

inline constexpr Duration kShareOfRound = Milliseconds(2);

struct ServerLimits {
  size_t max_connections = 4096;
  size_t max_connections_per_user = 1024;
  size_t max_unread_per_user = size_t{32} << 20;  // bytes of answers
  size_t max_newcomers = 128;
  Duration newcomer_patience = Seconds(5);
  std::optional<Duration> exit_when_idle = std::nullopt;
};

// What else its loop does.
struct ServerHooks {
  std::function<void()> on_hangup = {};  // at SIGHUP
  std::function<void()> beat = {};       // every `beat_every`
  std::optional<Duration> beat_every = std::nullopt;
};

class Server {
 public:
  // `signals`: a signalfd; may be empty. `processes`: of the sessions that the service has already,
  // a pidfd each.
  static Result<std::unique_ptr<Server>> Make(Listener listener, UniqueFd signals,
                                              std::unique_ptr<service::Service> service,
                                              const ServerLimits& limits,
                                              std::map<int, UniqueFd>&& processes = {},
                                              std::unique_ptr<Meter> meter = nullptr,
                                              std::unique_ptr<SpillStore> spill = nullptr);

  void SetHooks(ServerHooks hooks);
  // Until a signal comes, or the daemon has been idle for exit_when_idle.
  void Run();
  // One round: waits at most `patience` for something to happen, and handles it.
  void RunOnce(Duration patience);
  bool finished() const { return finished_; }
  size_t connections() const { return clients_.size(); }

 private:
  using ConnectionId = service::ConnectionId;
  struct Client {
    Client(UniqueFd socket, UniqueFd process, int pid, unsigned uid, bool software_gpu,
           Instant deadline)
        : connection(std::move(socket), uid, software_gpu),
          process(std::move(process)),
          pid(pid),
          uid(uid),
          deadline(deadline) {}
    Connection connection;
    UniqueFd process;  // pidfd, until a session watches it
    int pid;
    unsigned uid;
    Instant deadline;  // to say what it is
    bool closing = false;
    bool waits_for_room = false;
  };

  Server(Listener listener, UniqueFd signals, std::unique_ptr<service::Service> service,
         const ServerLimits& limits);
  Status Watch(int fd, uint64_t tag, uint32_t events);
  void Accept();
  void LetIn(UniqueFd socket);
  bool TurnAway();  // false: no connection waits
  bool HasRoomFor(unsigned uid) const;
  void MakeRoomForNewcomer();
  bool ReadsAnswers(unsigned uid) const;
  void OnReadable(ConnectionId id);
  void Carry(std::vector<service::Outgoing> messages);
  void Flush(ConnectionId id);
  void Drop(ConnectionId id, const std::string& why);
  void WatchProcess(ConnectionId id);
  void OnProcessEnd(int pid);
  void OnTime();
  void OnSignal(int signal);
  void End(int pid);
  void Measure(Instant now);
  void OnMeasured();
  void OnSpill(SpillStore::News news);
  void WatchSpill();
  void EndProcess(const service::Offender& offender);
  void DropLateNewcomers();
  void SetTimer();

  Listener listener_;
  UniqueFd signals_;
  UniqueFd epoll_;
  UniqueFd timer_;
  UniqueFd spare_;                     // to accept and close a connection when no other is left
  std::unique_ptr<SpillStore> spill_;  // null: there are no files; the service asks it
  std::unique_ptr<service::Service> service_;
  ServerLimits limits_;
  ServerHooks hooks_;
  Instant beats_at_;
  std::map<ConnectionId, Client> clients_;
  std::map<int, UniqueFd> processes_;   // of sessions, by pid
  std::unique_ptr<Meter> meter_;        // null: the cards are not measured
  std::map<unsigned, Duration> spent_;  // in this round on the messages of each user
  size_t rounds_ = 0;
  ConnectionId last_connection_ = 0;
  service::LogRate log_rate_;  // of refusals
  std::optional<Instant> idle_since_;
  uint64_t started_ticks_;  // when this began, as the kernel counts
  bool finished_ = false;
};

}  // namespace tandem::daemon
