// SessionTable: the file beside the socket in which a daemon keeps its sessions for the next one
// (src/service/saved_sessions.h).
//
// It is mapped, so that an update is a store and survives the end of the process. Its blocks are
// reserved beforehand: a disk that fills up later cannot hurt the daemon.
//
// Threading: none.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "src/base/result.h"
#include "src/base/unique_fd.h"
#include "src/service/saved_sessions.h"

namespace tandem::daemon {

class SessionTable : public service::SavedSessions {
 public:
  static constexpr size_t kEntries = 8192;

  // Opens the file, or makes it. A file of another version, of another boot or of another size is
  // begun anew. REQUIRES: no other daemon uses it.
  static Result<std::unique_ptr<SessionTable>> Open(const std::string& path);
  ~SessionTable() override;
  SessionTable(const SessionTable&) = delete;
  SessionTable& operator=(const SessionTable&) = delete;

  // Of the processes of the sessions found: a pidfd each, by number.
  std::map<int, UniqueFd> TakeProcesses() { return std::move(processes_); }

  std::vector<service::SavedSession*> found() override { return found_; }
  bool complete() const override { return complete_; }
  service::SavedSession* Add() override;
  std::atomic<uint64_t>& last_session() override;

 private:
  struct File;
  explicit SessionTable(File* file) : file_(file) {}
  void Begin(const std::string& boot);
  void Find();

  File* const file_;  // mapped
  bool complete_ = false;
  std::vector<service::SavedSession*> found_;
  std::map<int, UniqueFd> processes_;
  size_t next_ = 0;  // where to look for a free entry
};

}  // namespace tandem::daemon
