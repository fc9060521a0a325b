// Orders about shares of the time: whose, who may give them, and what becomes of them.
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "src/service/records.h"

namespace tandem::service {
namespace {

using Json = nlohmann::json;

constexpr double kLeastWeight = 1e-3, kMostWeight = 1e3, kLeastPercent = 0.1;
constexpr std::string_view kUser = "user:";

}  // namespace

std::optional<core::Share> ParseShare(std::string_view text) {
  const bool percent = text.ends_with('%');
  if (percent) text.remove_suffix(1);
  double number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc() && stop == text.data() + text.size();
  if (!whole || !std::isfinite(number)) return std::nullopt;
  if (percent) {
    if (number < kLeastPercent || number > 100) return std::nullopt;
    return core::Share{1, number / 100};
  }
  if (number < kLeastWeight || number > kMostWeight) return std::nullopt;
  return core::Share{number, {}};
}

core::Tenant TenantOf(const Client& client) {
  return {"", std::to_string(client.uid)};
}

std::string ShareText(const core::Share& share) {
  std::array<char, 32> text;
  const double number = share.fraction.has_value() ? *share.fraction * 100 : share.weight;
  std::snprintf(text.data(), text.size(), "%g%s", number, share.fraction.has_value() ? "%" : "");
  return text.data();
}

void Service::SetShare(Connection& from, const wire::Control& m) {
  const std::optional<core::Share> share = ParseShare(m.value);
  if (!share.has_value()) {
    return Refuse(from.id, wire::RefusalCode::kUnknownTarget,
                  "\"" + Printable(m.value) +
                      "\" is no share: a weight from 0.001 to 1000, such as 2, or a part of the "
                      "time of at least 0.1%, such as 30%",
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
                       {"share", ShareText(*share)},
                       {"before", ShareText(before)}});
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
                         {"share", ShareText(*share)},
                         {"before", ShareText(before)}});
    }
  }
  Json unfair = Json::array();
  for (const auto& gpu : gpus_) {
    if (gpu->arbiter.config().policy != "fair") unfair.push_back(gpu->info.index);
  }
  const Json answer = {{"changed", std::move(changed)}, {"gpus_without_shares", std::move(unfair)}};
  out_.push_back(Outgoing{from.id, wire::Answer{answer.dump()}, {}, false});
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
