// What the service does about memory that a program offers to its user's other processes.
#include <algorithm>
#include <utility>

#include "src/service/records.h"

namespace tandem::service {

void Service::Handle(Connection& from, const wire::Offer& m) {
  if (from.role == Connection::Role::kSession) {
    return Refuse(from.id, wire::RefusalCode::kProtocol, "Offer is not for sessions", true);
  }
  from.role = Connection::Role::kPeople;
  Gpu* const gpu = FindGpu(m.device);
  const Seat* const seat = gpu == nullptr ? nullptr : FindSeat(from.client, *gpu);
  if (seat == nullptr) {
    return Refuse(from.id, wire::RefusalCode::kNoSession, "only a session's memory can be offered",
                  true);
  }
  if (!memory_) {
    return Refuse(from.id, wire::RefusalCode::kProtocol, "the offer came without memory", true);
  }
  const OfferKey key{m.token_high, m.token_low};
  const auto known = offers_.find(key);
  if (known != offers_.end() && known->second.by != seat->id) {
    return Refuse(from.id, wire::RefusalCode::kProtocol, "that token is another's", true);
  }
  const auto theirs = std::count_if(offers_.begin(), offers_.end(), [&](const auto& entry) {
    return entry.second.uid == from.client.uid;
  });
  if (known == offers_.end() && static_cast<size_t>(theirs) >= kMaxOffersPerUser) {
    return Refuse(from.id, wire::RefusalCode::kTooMany,
                  "user " + std::to_string(from.client.uid) + " offers memory " +
                      std::to_string(kMaxOffersPerUser) + " times already",
                  true);
  }
  if (known != offers_.end()) LetGo(std::move(known->second.memory), from.client.uid);
  offers_[key] = Offered{seat->id, from.client.uid, std::move(memory_)};
  out_.push_back(Outgoing{from.id, wire::Offered{}, {}, false});
}

void Service::Handle(Connection& from, const wire::Withdraw& m) {
  if (from.role != Connection::Role::kSession) {
    return Refuse(from.id, wire::RefusalCode::kProtocol, "Withdraw needs a session", true);
  }
  const auto known = offers_.find({m.token_high, m.token_low});
  if (known == offers_.end() || from.seat == nullptr || known->second.by != from.seat->id) return;
  LetGo(std::move(known->second.memory), known->second.uid);
  offers_.erase(known);
}

void Service::Handle(Connection& from, const wire::Fetch& m) {
  if (from.role == Connection::Role::kSession) {
    return Refuse(from.id, wire::RefusalCode::kProtocol, "Fetch is not for sessions", true);
  }
  from.role = Connection::Role::kPeople;
  const auto known = offers_.find({m.token_high, m.token_low});
  // The same answer to both: it must not show whether another user has such an offer.
  if (known == offers_.end() || known->second.uid != from.client.uid) {
    return Refuse(from.id, wire::RefusalCode::kUnknownTarget, "there is no such offer", false);
  }
  UniqueFd copy(fcntl(known->second.memory.get(), F_DUPFD_CLOEXEC, 0));
  if (!copy) {
    return Refuse(from.id, wire::RefusalCode::kTooMany, "the daemon has no descriptor left", false);
  }
  // One for each connection: otherwise copies pile up for a client that asks often and does not
  // read.
  out_.push_back(Outgoing{from.id, wire::Fetched{}, {}, true, std::move(copy)});
}

void Service::DropOffers(core::SessionId session) {
  for (auto at = offers_.begin(); at != offers_.end();) {
    const auto offer = at++;
    if (offer->second.by != session) continue;
    LetGo(std::move(offer->second.memory), offer->second.uid);
    offers_.erase(offer);
  }
}

bool Service::serves_software_gpu() const {
  return std::any_of(gpus_.begin(), gpus_.end(),
                     [](const auto& gpu) { return gpu->info.software; });
}

void Service::LetGo(UniqueFd memory, unsigned uid) {
  if (memory && config_.let_go) config_.let_go(std::move(memory), uid);
}

}  // namespace tandem::service
