#include "src/history/recorder.h"

#include <pthread.h>

#include <utility>

#include "src/base/mutex.h"
#include "src/history/line.h"

namespace tandem::history {
namespace {

constexpr Duration kGather = Milliseconds(100);  // then the records are written at once
constexpr Duration kPatience = Seconds(2);       // at the end

}  // namespace

class Recorder::Work {
 public:
  explicit Work(RecorderConfig config)
      : config_(std::move(config)),
        log_(config_.events, config_.note, [this] { return Head(); }),
        accounts_(WithNotes(config_)) {}

  void Put(Record record) {
    const MutexLock lock(mutex_);
    if (queue_.size() >= config_.most_queued) {
      ++lost_;
      ++lost_now_;
      return;
    }
    queue_.push_back(std::move(record));
    if (queue_.size() == 1) changed_.NotifyAll();
  }

  uint64_t lost() {
    const MutexLock lock(mutex_);
    return lost_;
  }

  void Run() {
    pthread_setname_np(pthread_self(), "recorder");
    if (!config_.accounts_file.empty()) accounts_.Open(config_.accounts_file);
    for (Duration gather;; gather = kGather) {  // the first at once, so that the files are there
      std::vector<Record> records;
      uint64_t lost = 0;
      bool ends = false;
      {
        const MutexLock lock(mutex_);
        while (queue_.empty() && !stopped_) changed_.Wait(mutex_);
        WaitUntil(MonotonicNow() + gather, stopped_);
        records.swap(queue_);
        lost = std::exchange(lost_now_, 0);
        ends = stopped_;
      }
      if (lost > 0) records.push_back({records.back().at, records.back().unix_ns, Lost{lost}});
      Write(std::move(records));
      if (!ends) continue;
      const MutexLock lock(mutex_);
      finished_ = true;
      changed_.NotifyAll();
      return;
    }
  }

  // Whether all is written.
  bool Stop() {
    const MutexLock lock(mutex_);
    stopped_ = true;
    changed_.NotifyAll();
    WaitUntil(MonotonicNow() + kPatience, finished_);
    return finished_;
  }

 private:
  void WaitUntil(Instant by, const bool& done) REQUIRES_LOCK(mutex_) {
    for (Instant now = MonotonicNow(); !done && now < by; now = MonotonicNow()) {
      changed_.WaitFor(mutex_, by - now);
    }
  }

  void Write(std::vector<Record> records) {
    std::string lines;
    uint64_t count = 0;
    std::vector<Usage> used;
    for (Record& record : records) {
      std::string line = LineOf(record);
      Remember(record, line);
      if (!line.empty()) {
        lines += line + "\n";
        ++count;
      }
      if (Usage* const usage = std::get_if<Usage>(&record.what)) {
        usage->of = Named(usage->of);
        if (usage->last) named_.erase(usage->of->session);
        used.push_back(std::move(*usage));
      }
    }
    if (!config_.events.path.empty()) log_.Append(lines, count, MonotonicNow());
    if (!config_.accounts_file.empty() && !used.empty()) accounts_.Add(used);
  }

  static AccountsOptions WithNotes(const RecorderConfig& config) {
    AccountsOptions options = config.accounts;
    options.say = config.note;
    return options;
  }

  // With its user's name. The same for all intervals of a session, as the accounts want it.
  std::shared_ptr<const SessionIdentity> Named(const std::shared_ptr<const SessionIdentity>& of) {
    if (!config_.user_name) return of;
    std::shared_ptr<const SessionIdentity>& named = named_[of->session];
    if (named != nullptr && named->started_unix_ns == of->started_unix_ns) return named;
    auto copy = std::make_shared<SessionIdentity>(*of);
    copy->user = config_.user_name(of->uid);
    named = std::move(copy);
    return named;
  }

  // What each file of the log begins with: the daemon, and the sessions that it has.
  void Remember(const Record& record, const std::string& line) {
    if (std::holds_alternative<DaemonStarted>(record.what)) daemon_ = line + "\n";
    if (const auto* const identified = std::get_if<SessionIdentified>(&record.what)) {
      sessions_[identified->who->session] = line + "\n";
    }
    const auto* const usage = std::get_if<Usage>(&record.what);
    if (usage != nullptr && usage->last) sessions_.erase(usage->of->session);
  }
  std::string Head() const {
    std::string head = daemon_;
    for (const auto& [session, line] : sessions_) head += line;
    return head;
  }

  const RecorderConfig config_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<Record> queue_ GUARDED_BY(mutex_);
  uint64_t lost_ GUARDED_BY(mutex_) = 0;
  uint64_t lost_now_ GUARDED_BY(mutex_) = 0;  // since the last ones were taken
  bool stopped_ GUARDED_BY(mutex_) = false;
  bool finished_ GUARDED_BY(mutex_) = false;
  // Of the thread.
  EventLog log_;
  AccountsWriter accounts_;
  std::string daemon_;
  std::map<uint64_t, std::string> sessions_;
  std::map<uint64_t, std::shared_ptr<const SessionIdentity>> named_;
};

Recorder::Recorder(RecorderConfig config)
    : work_(std::make_shared<Work>(std::move(config))), thread_([work = work_] { work->Run(); }) {}

Recorder::~Recorder() {
  if (work_->Stop()) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

void Recorder::Put(Record record) {
  work_->Put(std::move(record));
}

uint64_t Recorder::lost() const {
  return work_->lost();
}

}  // namespace tandem::history
