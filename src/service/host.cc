// The host's memory and the files that stand in for it: what sessions get of them, and who is
// refused for lack of both.
#include "src/service/records.h"

namespace tandem::service {

// None: the session will have to do without.
UniqueFd Service::MakeSpillFile() const {
  if (!config_.spill.make) return {};
  Result<UniqueFd> file = config_.spill.make();
  return file.ok() ? *std::move(file) : UniqueFd();
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
