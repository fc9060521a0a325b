#include "src/history/line.h"

#include <nlohmann/json.hpp>

#include "src/core/class_names.h"
#include "src/core/why_names.h"
#include "src/history/local_time.h"

namespace tandem::history {
namespace {

using Line = nlohmann::ordered_json;  // fields stay in their order
namespace event = core::event;
namespace action = core::action;

Line Numbers(const std::vector<core::SessionId>& ids) {
  Line list = Line::array();
  for (const core::SessionId id : ids) list.push_back(id.value);
  return list;
}

Line ShareOf(const core::Share& share) {
  return share.fraction.has_value() ? Line{{"fraction", *share.fraction}}
                                    : Line{{"weight", share.weight}};
}

// What happened, one for each kind of event; null where it has no line.
Line Fields(const event::SessionAdded& e) {
  Line fields = {{"event", "added"},
                 {"session", e.id.value},
                 {"run", e.run.value},
                 {"user", e.tenant.user},
                 {"project", e.tenant.project},
                 {"class", core::NameOf(e.of_class)},
                 {"limit_bytes", e.limit.count},
                 {"allocated_bytes", e.allocated.count},
                 {"resident_bytes", e.resident.count},
                 {"fixed_bytes", e.fixed.count},
                 {"contexts", e.contexts},
                 {"oversubscribes", e.oversubscribes},
                 {"spills", e.spills}};
  if (e.replaces.has_value()) fields["replaces"] = e.replaces->value;
  if (e.budget.has_value()) fields["budget_bytes"] = e.budget->count;
  return fields;
}
Line Fields(const event::SessionGone& e) {
  return {{"event", "gone"}, {"session", e.id.value}};
}
Line Fields(const event::Reserve& e) {
  return {{"event", "reserve"}, {"session", e.id.value}, {"allocated_bytes", e.total.count}};
}
Line Fields(const event::ContextWanted& e) {
  return {{"event", "context_wanted"}, {"session", e.id.value}};
}
Line Fields(const event::ContextGone& e) {
  return {{"event", "context_gone"}, {"session", e.id.value}};
}
Line Fields(const event::FixedWanted& e) {
  return {{"event", "fixed_wanted"}, {"session", e.id.value}, {"bytes", e.bytes.count}};
}
Line Fields(const event::FixedGone& e) {
  return {{"event", "fixed_gone"}, {"session", e.id.value}, {"bytes", e.bytes.count}};
}
Line Fields(const event::Ready& e) {
  return {{"event", "ready"}, {"session", e.id.value}, {"need_bytes", e.need.count}};
}
Line Fields(const event::NotReady& e) {
  return {{"event", "not_ready"}, {"session", e.id.value}};
}
Line Fields(const event::Running& e) {
  return {
      {"event", "running"}, {"session", e.id.value}, {"epoch", e.epoch}, {"in_bytes", e.in.count}};
}
Line Fields(const event::Restored&) {
  return {};
}
Line Fields(const event::Idle& e) {
  return {{"event", "idle"}, {"session", e.id.value}, {"epoch", e.epoch}};
}
Line Fields(const event::Active& e) {
  return {{"event", "active"}, {"session", e.id.value}, {"epoch", e.epoch}};
}
Line Fields(const event::Released& e) {
  return {{"event", "released"}, {"session", e.id.value}, {"epoch", e.epoch}};
}
Line Fields(const event::Busy& e) {
  return {{"event", "busy"}, {"session", e.id.value}, {"epoch", e.epoch}};
}
Line Fields(const event::Evicted& e) {
  return {{"event", "evicted"}, {"session", e.id.value}, {"resident_bytes", e.resident.count}};
}
Line Fields(const event::Suspended& e) {
  return {{"event", e.suspended ? "suspended" : "resumed"}, {"session", e.id.value}};
}
Line Fields(const event::LimitSet& e) {
  return {{"event", "limit"}, {"run", e.run.value}, {"limit_bytes", e.limit.count}};
}
Line Fields(const event::ShareSet& e) {
  Line fields = {{"event", "share"}, {"project", e.of.project}};
  if (e.of.user.has_value()) fields["user"] = *e.of.user;
  if (e.of.session.has_value()) fields["session"] = e.of.session->value;
  fields.update(ShareOf(e.share));
  return fields;
}
Line Fields(const event::ClassSet& e) {
  return {{"event", "class"}, {"session", e.id.value}, {"class", core::NameOf(e.of_class)}};
}
Line Fields(const event::Declared& e) {
  return {{"event", "declared"}, {"session", e.id.value}, {"burst_s", e.burst.seconds()}};
}
Line Fields(const event::Leaving& e) {
  return {{"event", "leaving"}, {"session", e.id.value}};
}
Line Fields(const event::PolicySet& e) {
  return {{"event", "policy"}, {"policy", e.policy}};
}
Line Fields(const event::BudgetSet& e) {
  return {{"event", "budget"}, {"budget_bytes", e.total.count}};
}
Line Fields(const event::Tick&) {
  return {};
}

// What was decided.
Line Fields(const action::Grant& a) {
  return {{"event", "grant"},
          {"session", a.id.value},
          {"epoch", a.epoch},
          {"credit_bytes", a.credit.count}};
}
Line Fields(const action::Credit& a) {
  return {{"event", "credit"}, {"session", a.id.value}, {"credit_bytes", a.credit.count}};
}
Line Fields(const action::Revoke& a) {
  return {{"event", "revoke"},
          {"session", a.id.value},
          {"epoch", a.epoch},
          {"reason_code", core::NameOf(a.why).code}};
}
Line Fields(const action::Evict& a) {
  return {{"event", "evict"}, {"session", a.id.value}, {"target_bytes", a.target.count}};
}
Line Fields(const action::ContextReserved& a) {
  return {{"event", "context_reserved"}, {"session", a.id.value}, {"granted", a.granted}};
}
Line Fields(const action::FixedReserved& a) {
  return {{"event", "fixed_reserved"}, {"session", a.id.value}, {"granted", a.granted}};
}
Line Fields(const action::Reserved& a) {
  if (a.granted) return {};  // nearly always, and at once
  return {{"event", "reserved"}, {"session", a.id.value}, {"granted", false}};
}
Line Fields(const action::HostFull& a) {
  return {{"event", "host_full"}, {"session", a.id.value}};
}
Line Fields(const action::SetContended&) {
  return {};
}
Line Fields(const action::HandoverDone&) {
  return {};  // comes as HandedOver
}
Line Fields(const action::WakeAt&) {
  return {};
}
Line Fields(const action::Overdue& a) {
  return {{"event", "overdue"}, {"session", a.id.value}};
}
Line Fields(const action::Breach& a) {
  return {{"event", "breach"}, {"session", a.id.value}, {"reason", a.reason}};
}

Line OnGpu(int gpu, Line fields) {
  if (!fields.is_null()) fields["gpu"] = gpu;
  return fields;
}

Line Fields(const DaemonStarted& started) {
  Line gpus = Line::array();
  for (const GpuFacts& gpu : started.gpus) {
    gpus.push_back({{"index", gpu.index},
                    {"uuid", gpu.uuid},
                    {"name", gpu.name},
                    {"software", gpu.software},
                    {"card_bytes", gpu.card.count},
                    {"budget_bytes", gpu.budget.count},
                    {"context_bytes", gpu.context.count},
                    {"chunk_bytes", gpu.chunk.count}});
  }
  return {{"event", "daemon"},  {"format", kEventFormat},   {"version", started.version},
          {"pid", started.pid}, {"policy", started.policy}, {"gpus", std::move(gpus)}};
}

Line Fields(const SessionIdentified& identified) {
  const SessionIdentity& who = *identified.who;
  return {{"event", "session"},
          {"session", who.session},
          {"gpu", who.gpu_index},
          {"uid", who.uid},
          {"project", who.project},
          {"name", who.run},
          {"program", who.program},
          {"pid", who.pid},
          {"started", UtcTime(who.started_unix_ns)}};
}

Line Fields(const Told& told) {
  return OnGpu(told.gpu, std::visit([](const auto& event) { return Fields(event); }, told.event));
}

Line Fields(const Decided& decided) {
  return OnGpu(decided.gpu,
               std::visit([](const auto& action) { return Fields(action); }, decided.action));
}

Line Fields(const HandedOver& done) {
  const core::Handover& handover = done.handover;
  Line resident = Line::object();
  for (const auto& [id, bytes] : done.resident) resident[std::to_string(id.value)] = bytes.count;
  return {
      {"event", "handover"},
      {"gpu", done.gpu},
      {"epoch", handover.epoch},
      {"to", handover.to.value},
      {"from", Numbers(handover.from)},
      {"reason_code", handover.why.has_value() ? Line(core::NameOf(*handover.why).code) : Line()},
      {"given_up", handover.given_up},
      {"lacked_bytes", handover.lacked.count},
      {"out_bytes", handover.out.count},
      {"evicted_bytes", handover.evicted.count},
      {"in_bytes", handover.in.count},
      {"revoked_ns", handover.revoked_at.ns},
      {"released_ns", handover.released_at.ns},
      {"running_ns", handover.running_at.ns},
      {"resident_bytes", std::move(resident)}};
}

// Of the last ten seconds or less.
Line Fields(const Usage& usage) {
  return {{"event", "usage"},
          {"session", usage.of->session},
          {"gpu", usage.of->gpu_index},
          {"seconds", static_cast<double>(usage.to_unix_ns - usage.from_unix_ns) * 1e-9},
          {"held_s", usage.held_s},
          {"active_s", usage.active_s},
          {"waited_s", usage.waited_s},
          {"allocated_byte_s", usage.allocated_byte_s},
          {"resident_byte_s", usage.resident_byte_s},
          {"swapped_byte_s", usage.swapped_byte_s},
          {"handovers", usage.handovers},
          {"out_bytes", usage.out_bytes},
          {"in_bytes", usage.in_bytes},
          {"last", usage.last}};
}

Line Fields(const Lost& lost) {
  return {{"event", "lost"}, {"count", lost.count}};
}

}  // namespace

std::string LineOf(const Record& record) {
  Line fields = std::visit([](const auto& what) { return Fields(what); }, record.what);
  if (fields.is_null()) return "";
  Line line = {{"at", UtcTime(record.unix_ns)}, {"ns", record.at.ns}};
  line.update(fields);
  return line.dump(-1, ' ', false, Line::error_handler_t::replace);
}

}  // namespace tandem::history
