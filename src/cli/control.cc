#include "src/cli/control.h"

#include <fmt/core.h>
#include <poll.h>

#include "src/base/bytes.h"
#include "src/base/duration.h"
#include "src/cli/daemon.h"
#include "src/cli/environment.h"
#include "src/cli/listing.h"
#include "src/cli/print.h"

namespace tandem::cli {
namespace {

constexpr int kPollMs = 20;
constexpr Duration kReturnPatience = Seconds(20);

Result<wire::Control> MakeOrder(const ControlOptions& options) {
  wire::Control order{options.what, options.target, 0, options.fail_after};
  if (options.what != "limit" || options.memory == "all") return order;
  ASSIGN_OR_RETURN(const Bytes limit, ParseBytes(options.memory));
  order.limit_bytes = limit.count;
  return order;
}

// What the order has come to: those it concerns, as listed.
struct Outcome {
  std::string sessions;  // JSON
  bool in_time = true;
};

Result<Outcome> CarryOut(wire::Channel channel, const wire::Control& order, Instant deadline) {
  ASSIGN_OR_RETURN(const std::string concerned, AskForJson(&channel, order));
  for (;;) {
    Outcome outcome;
    ASSIGN_OR_RETURN(const std::string all, AskForJson(&channel, wire::Query{"sessions"}));
    ASSIGN_OR_RETURN(outcome.sessions, PickSessions(all, concerned));
    if (order.what != "suspend" || AllSuspended(outcome.sessions)) return outcome;
    outcome.in_time = MonotonicNow() < deadline;
    if (!outcome.in_time) return outcome;
    poll(nullptr, 0, kPollMs);
  }
}

// The next daemon numbers sessions and runs anew.
bool IsNumber(const std::string& target) {
  return target.find_first_not_of("0123456789") == std::string::npos;
}

// An order is the same when it is given twice: where the daemon ends meanwhile, the next one is
// told, once it and the programs it serves are back.
Result<Outcome> Order(const ControlOptions& options) {
  ASSIGN_OR_RETURN(const Duration patience, ParseDuration(options.timeout));
  ASSIGN_OR_RETURN(const wire::Control order, MakeOrder(options));
  ASSIGN_OR_RETURN(wire::Channel channel, ConnectRunning());
  const Instant deadline = MonotonicNow() + patience;
  Result<Outcome> outcome = CarryOut(std::move(channel), order, deadline);
  if (outcome.ok() || outcome.error().code != ErrorCode::kUnavailable) return outcome;
  if (IsNumber(order.target)) {
    return Error{ErrorCode::kUnavailable,
                 "the daemon ended meanwhile, and the next one gives other numbers: `tandem ps` "
                 "lists them, and whether this was still done"};
  }
  const Instant back_by = MonotonicNow() + kReturnPatience;
  do {
    poll(nullptr, 0, kPollMs);
    Result<wire::Channel> next = ConnectRunning();
    outcome = next.ok() ? CarryOut(std::move(*next), order, deadline)
                        : Result<Outcome>(std::move(next).error());
  } while (!outcome.ok() && MonotonicNow() < back_by);
  return outcome;
}

int Show(const Outcome& outcome, const ControlOptions& options) {
  const Result<std::string> text =
      options.json ? CompactJson(outcome.sessions) : SessionsTable(outcome.sessions, OwnScreen());
  if (!text.ok()) return Fail(text.error());
  if (options.json) return Print(*text + "\n");
  if (NoSessions(outcome.sessions)) return Print("It uses no GPU yet; the order stands.\n");
  return Print(*text + (options.what == "suspend" ? StayingText(outcome.sessions) : ""));
}

}  // namespace

int Control(const ControlOptions& options) {
  if (const auto gpu = ChooseGpu(options.gpu); !gpu.ok()) return Fail(gpu.error());
  const Result<Outcome> outcome = Order(options);
  if (!outcome.ok()) return Fail(outcome.error());
  const int status = Show(*outcome, options);
  if (outcome->in_time) return status;
  return Fail(
      1,
      "some memory is still on the GPU; the suspension still takes effect. The memory leaves "
      "when the work in flight ends or, where a process is stopped, when it continues");
}

}  // namespace tandem::cli
