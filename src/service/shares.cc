// Orders about shares of the time: whose, who may give them, and what becomes of them.
#include <charconv>
#include <nlohmann/json.hpp>

#include "src/base/json.h"
#include "src/core/share_text.h"
#include "src/service/records.h"

namespace tandem::service {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kUser = "user:";

}  // namespace

core::Tenant TenantOf(const Client& client) {
  return {"", std::to_string(client.uid)};
}

void Service::SetShare(Connection& from, const wire::Control& m) {
  const std::optional<core::Share> share = core::ParseShare(m.value);
  if (!share.has_value()) {
    return Refuse(from.id, wire::RefusalCode::kUnknownTarget, core::NoShareText(Printable(m.value)),
                  false);
  }
  Json changed = Json::array();
  if (m.target.starts_with(kUser)) {
    if (!MayRule(from)) {
      return Refuse(from.id, wire::RefusalCode::kNotYours,
                    "only root or the daemon's owner can set a user's share", false);
    }
    const std::string_view text = std::string_view(m.target).substr(kUser.size());
    unsigned uid = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), uid);
    if (error != std::errc() || stop != text.data() + text.size()) {
      return Refuse(from.id, wire::RefusalCode::kUnknownTarget,
                    "\"" + Printable(std::string(text)) + "\" is no user's number", false);
    }
    const std::string user = std::to_string(uid);
    const core::ShareKey key{"", user, {}};
    const core::Share before = gpus_.front()->arbiter.shares().Of(key);
    for (const auto& gpu : gpus_) Feed(*gpu, core::event::ShareSet{key, *share});
    changed.push_back({{"user", user},
                       {"session", nullptr},
                       {"share", core::ShareText(*share)},
                       {"before", core::ShareText(before)}});
  } else {
    std::optional<Target> target = ChooseTarget(from, m.target);
    if (!target.has_value()) return;
    if (target->whole_run) runs_.at(*target->run).share = *share;
    for (const Seat* seat : target->seats) {
      const core::ShareKey key = KeyOf(*seat);
      const core::Share before = seat->gpu->arbiter.shares().Of(key);
      Feed(*seat->gpu, core::event::ShareSet{key, *share});
      changed.push_back({{"user", *key.user},
                         {"session", seat->id.value},
                         {"share", core::ShareText(*share)},
                         {"before", core::ShareText(before)}});
    }
  }
  Json unfair = Json::array();
  for (const auto& gpu : gpus_) {
    if (gpu->arbiter.config().policy != "fair") unfair.push_back(gpu->info.index);
  }
  const Json answer = {{"changed", std::move(changed)}, {"gpus_without_shares", std::move(unfair)}};
  out_.push_back(Outgoing{from.id, wire::Answer{JsonText(answer)}, {}, false});
}

// Of a session that comes, or comes back as `seat`.
core::Share Service::FirstShare(const Seat* old, const Seat& seat) const {
  if (old != nullptr) return old->gpu->arbiter.shares().Of(KeyOf(*old));
  const auto run = seat.run.has_value() ? runs_.find(*seat.run) : runs_.end();
  return run == runs_.end() ? core::Share() : run->second.share.value_or(core::Share());
}

core::ShareKey Service::KeyOf(const Seat& seat) {
  const core::Tenant tenant = TenantOf(seat.client);
  return {tenant.project, tenant.user, seat.id};
}

}  // namespace tandem::service
