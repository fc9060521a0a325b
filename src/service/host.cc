// The host's memory and the files that stand in for it: what sessions get of them, and who is
// refused for lack of both.
#include "src/service/records.h"

namespace tandem::service {

// Whether the message is held until there is an answer. Else the session has what it gets, or has
// to do without.
bool Service::AwaitSpillFile(Connection& from, const Gpu& gpu, const wire::Register& m) {
  if (m.spills == 0 || from.spill_file.has_value() || !config_.spill.ask) return false;
  const SpillOwner owner{from.client.pid, gpu.info.index};
  if (!config_.spill.ask(from.id, owner, from.client.uid, from.client.gid)) return false;
  from.awaits_file = true;
  ++from.held;
  held_.emplace_back(from.id, m);
  return true;
}

std::vector<Outgoing> Service::OnSpillFile(ConnectionId connection, UniqueFd file, Instant now) {
  now_ = now;
  const auto at = connections_.find(connection);
  if (at == connections_.end()) {
    LetGo(std::move(file), config_.uid);
    return {};
  }
  at->second->awaits_file = false;
  at->second->spill_file = std::move(file);
  ReleaseHeld();
  if (MayEndSettling()) EndSettling();
  return std::move(out_);
}

void Service::EndSpillFiles(int pid) const {
  if (config_.spill.end && !HasSessions(pid)) config_.spill.end(pid);
}

std::vector<Offender> Service::OnSpillSizes(const SpillSizes& sizes, Instant now) {
  std::vector<Offender> offenders;
  for (const auto& [id, seat] : sessions_) {
    const GpuInfo& gpu = seat->gpu->info;
    const auto size = sizes.find({seat->client.pid, gpu.index});
    const Bytes holds = size == sizes.end() ? Bytes() : size->second;
    const Bytes allowed = seat->spill_quota.OnMeasured(holds, now);
    // Pieces are whole chunks, and the file system needs room to say where they lie.
    const Bytes slack(2 * gpu.chunk.count + allowed.count / 64);
    if (holds <= allowed + slack) continue;
    offenders.push_back({seat->client.pid, Describe(*seat) + " has " + FormatBytes(holds) +
                                               " in its spill file, and was promised " +
                                               FormatBytes(allowed)});
  }
  return offenders;
}

// All of the session's memory would go to the host. Whether the host has no room, which the caller
// was told.
bool Service::RefuseForHost(const Connection& from, const std::vector<Seat*>& seats) {
  Bytes more, more_memory;
  for (const Seat* seat : seats) {
    const core::Arbiter& arbiter = seat->gpu->arbiter;
    const core::Session& session = arbiter.sessions().at(seat->id);
    if (session.parked()) continue;  // of it nothing is on the card
    const Bytes lacking =
        SaturatingSubtract(arbiter.limits().allocated(seat->id), arbiter.HostShare(seat->id));
    more += lacking;
    if (session.needs_memory()) more_memory += lacking;
  }
  const Bytes left_memory = host_.LeftInMemory();
  const bool all = more > left_memory + host_.LeftInFile();
  if (!all && more_memory <= left_memory) return false;
  const Bytes lacking = all ? more : more_memory;
  Refuse(from.id, wire::RefusalCode::kHostFull,
         "host memory is full: this would take " + FormatBytes(lacking) + " more of it, and of " +
             HostLimitText() + " " +
             FormatBytes(all ? left_memory + host_.LeftInFile() : left_memory) + " are left",
         false);
  return true;
}

std::string Service::HostLimitText() const {
  std::string text = FormatBytes(host_.limit() - host_.spill_limit()) + " (tandemd --host-memory)";
  if (host_.spill_limit() == Bytes()) return text;
  return text + " and " + FormatBytes(host_.spill_limit()) + " in " +
         Printable(config_.spill.directory) + " (--spill)";
}

}  // namespace tandem::service
