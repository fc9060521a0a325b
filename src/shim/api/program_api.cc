// The functions of include/tandem/tandem.h.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>
#include <string>

#include "include/tandem/tandem.h"
#include "src/cuda/real_driver.h"
#include "src/shim/api/wait_watch.h"
#include "src/shim/program/process.h"
#include "src/wire/runtime_dir.h"

namespace tandem::shim {
namespace {

constexpr Duration kFirstLook = Milliseconds(100);  // of a wait, and then
// The daemon tells of waits from the first second on: then there is something to tell.
constexpr Duration kFirstWord = Seconds(2), kWordPeriod = Seconds(1);
constexpr Duration kAnswerPatience = Seconds(5);
constexpr int64_t kLongestWaitMs = int64_t{1000} * 86400 * 365;
constexpr Duration kLeastWait = Milliseconds(250);  // for an answer, where no session is in the way
// Of the options, up to and with `context`: what version 1 has.
constexpr size_t kOptionsBytes = sizeof(tandem_lease_options);

struct ApiLease : tandem_lease {
  ApiLease(const tandem_api* table, const tandem_lease_options& asked, const wire::Declare& said)
      : tandem_lease{table}, options(asked), program(said) {}

  const tandem_lease_options options;
  ProgramLease program;
  Guest* guest = nullptr;  // while it is begun
};

ApiLease* Of(tandem_lease* lease) {
  return static_cast<ApiLease*>(lease);
}

// In a forked child the parent's guests are gone.
bool IsOpen(const Guest* guest) {
  return FindGuest([&](const Guest* open) { return open == guest; }) != nullptr;
}

// The number of a class of work; nothing where no class is called that.
std::optional<uint8_t> ClassOf(const char* name) {
  if (name == nullptr) return wire::Declare::kOfRun;
  const auto* const end = std::end(wire::kClassNames);
  const auto* const at = std::find_if(std::begin(wire::kClassNames), end, [&](const char* known) {
    return std::strcmp(known, name) == 0;
  });
  if (at == end) return std::nullopt;
  return static_cast<uint8_t>(at - std::begin(wire::kClassNames));
}

// The program's guest on a device, opened if need be.
tandem_result FindGuestOn(CUdevice device, Guest** guest) {
  int count = 0;
  if (IsUnshared()) return TANDEM_UNAVAILABLE;
  if (Call(Real().cuInit, 0U) != CUDA_SUCCESS) return TANDEM_NO_DEVICE;
  if (!JoinDaemon()) return TANDEM_CANCELLED;
  if (Call(Real().cuDeviceGetCount, &count) != CUDA_SUCCESS) return TANDEM_NO_DEVICE;
  if (device < 0 || device >= count) return TANDEM_NO_DEVICE;
  const GuestResult found = GuestOn(device);
  *guest = found.guest;
  if (found.guest != nullptr) return TANDEM_OK;
  return found.refusal == CUDA_SUCCESS ? TANDEM_UNAVAILABLE : TANDEM_NO_ANSWER;
}

// Tells the program's callback what a lease waits for.
class WaitTeller {
 public:
  WaitTeller(const tandem_lease_options& options, Instant began)
      : options_(options), began_(began), word_at_(began + kFirstWord) {}

  // Whether the program wants to wait no longer.
  bool Tell(Instant now, bool interrupted) {
    if (options_.on_wait == nullptr) return false;
    std::optional<wire::Waiting> news;
    if (now - began_ >= kFirstLook) news = watch_.Poll(now);
    const bool changed = news.has_value() && !news->state.empty();
    if (changed) waiting_ = *news;
    if (!changed && !interrupted && now < word_at_) return false;
    word_at_ = now + kWordPeriod;
    return Call(now, interrupted && !changed) != 0;
  }

 private:
  int Call(Instant now, bool interrupted) const {
    const bool expected = waiting_.expected_ms != wire::Waiting::kUnknown;
    const tandem_wait wait{
        .size = sizeof(tandem_wait),
        .interrupted = interrupted ? 1U : 0U,
        .waited_ms = static_cast<uint64_t>((now - began_).ns / 1000000),
        .place = waiting_.place,
        .expected_ms = expected ? static_cast<int64_t>(waiting_.expected_ms) : -1,
        .holders = waiting_.holders,
        .holder = waiting_.holder.c_str(),
        .state = waiting_.state.c_str(),
        .reason = waiting_.reason.c_str(),
        .gpu = waiting_.gpu.c_str()};
    return options_.on_wait(options_.context, &wait);
  }

  const tandem_lease_options& options_;
  const Instant began_;
  Instant word_at_;
  WaitWatch watch_;
  wire::Waiting waiting_;
};

// Until the lease is granted; else why not.
tandem_result Await(ApiLease& lease, const Guest* guest) {
  using State = ProgramLease::State;
  const Instant began = MonotonicNow();
  const bool bounded = lease.options.wait_ms >= 0;
  const int64_t wait_ms = std::clamp<int64_t>(lease.options.wait_ms, 0, kLongestWaitMs);
  const Instant end = began + std::max(Milliseconds(wait_ms), kLeastWait);
  WaitTeller teller(lease.options, began);
  for (;;) {
    Duration most = kFirstLook;
    if (bounded) most = std::clamp(end - MonotonicNow(), Duration(), kFirstLook);
    const bool interrupted = lease.program.Await(most);
    const State state = lease.program.state();
    if (state == State::kGranted) return TANDEM_OK;
    if (state != State::kWaiting) return TANDEM_CANCELLED;
    const Instant now = MonotonicNow();
    if ((bounded && now >= end) || guest->refuses()) return TANDEM_TIMEOUT;
    if (teller.Tell(now, interrupted)) return TANDEM_CANCELLED;
  }
}

tandem_result LeaseBegin(tandem_lease* handle) {
  ApiLease& lease = *Of(handle);
  if (lease.guest != nullptr) return TANDEM_INVALID;
  Guest* guest = nullptr;
  const tandem_result found = FindGuestOn(lease.options.device, &guest);
  if (found != TANDEM_OK) return found;
  if (Bytes(lease.options.memory_bytes) > guest->limit()) return TANDEM_TOO_LARGE;
  guest->BeginLease(&lease.program);
  const tandem_result result = Await(lease, guest);
  if (result == TANDEM_OK) {
    lease.guest = guest;
  } else {
    guest->EndLease(&lease.program);
  }
  return result;
}

tandem_result LeaseEnd(tandem_lease* handle) {
  ApiLease& lease = *Of(handle);
  Guest* const guest = std::exchange(lease.guest, nullptr);
  if (guest == nullptr) return TANDEM_INVALID;
  if (!IsOpen(guest)) return TANDEM_UNAVAILABLE;
  guest->EndLease(&lease.program);
  return TANDEM_OK;
}

void LeaseCancel(tandem_lease* handle) {
  Of(handle)->program.Cancel();
}

void LeaseDestroy(tandem_lease* handle) {
  LeaseEnd(handle);
  delete Of(handle);
}

tandem_result LeaseCreate(const tandem_lease_options* options, tandem_lease** lease);

tandem_result Release(int32_t device) {
  Guest* const guest = OpenGuest(device);
  if (guest == nullptr) return HasGuests() ? TANDEM_OK : TANDEM_UNAVAILABLE;
  return guest->LeaveCard() ? TANDEM_OK : TANDEM_INVALID;
}

tandem_result GetState(int32_t device, tandem_state* state) {
  if (state == nullptr || state->size < sizeof(uint32_t)) return TANDEM_INVALID;
  tandem_state known{};
  if (const Guest* const guest = OpenGuest(device)) {
    const Guest::Standing standing = guest->GetStanding();
    known.session = 1;
    known.holds = standing.holds ? 1 : 0;
    known.contended = standing.contended ? 1 : 0;
    known.suspended = standing.suspended ? 1 : 0;
    known.leases = standing.leases;
    known.allocated_bytes = standing.allocated.count;
    known.resident_bytes = standing.resident.count;
    known.swapped_bytes = standing.swapped.count;
    known.limit_bytes = guest->limit().count;
    known.used_bytes = guest->used().count;
  }
  known.size = std::min<uint32_t>(state->size, sizeof(known));
  std::memcpy(state, &known, known.size);
  return TANDEM_OK;
}

tandem_result Query(const char* what, char* json, size_t* bytes) {
  if (what == nullptr || bytes == nullptr || (json == nullptr && *bytes != 0)) {
    return TANDEM_INVALID;
  }
  Result<wire::Channel> channel = wire::ConnectDaemon(wire::SocketPath());
  if (!channel.ok()) return TANDEM_NO_ANSWER;
  if (!channel->Send(wire::Query{what}, kAnswerPatience).ok()) return TANDEM_NO_ANSWER;
  const Result<wire::Message> message = channel->Receive(kAnswerPatience);
  if (!message.ok()) return TANDEM_NO_ANSWER;
  const auto* answer = std::get_if<wire::Answer>(&*message);
  if (answer == nullptr) return TANDEM_INVALID;
  const size_t room = std::exchange(*bytes, answer->json.size() + 1);
  if (room < *bytes) return TANDEM_TOO_LARGE;
  std::memcpy(json, answer->json.c_str(), *bytes);
  return TANDEM_OK;
}

constexpr tandem_api kApi = {.version = TANDEM_API_VERSION,
                             .size = sizeof(tandem_api),
                             .lease_create = &LeaseCreate,
                             .lease_begin = &LeaseBegin,
                             .lease_cancel = &LeaseCancel,
                             .lease_end = &LeaseEnd,
                             .lease_destroy = &LeaseDestroy,
                             .release = &Release,
                             .get_state = &GetState,
                             .query = &Query};

tandem_result LeaseCreate(const tandem_lease_options* options, tandem_lease** lease) {
  if (options == nullptr || lease == nullptr || options->size < kOptionsBytes) {
    return TANDEM_INVALID;
  }
  const std::optional<uint8_t> of_class = ClassOf(options->work_class);
  if (!of_class.has_value() || options->device < 0) return TANDEM_INVALID;
  wire::Declare declared;
  declared.burst_us = std::min(options->expected_ms, UINT64_MAX / 1000) * 1000;
  declared.of_class = *of_class;
  declared.memory_bytes = options->memory_bytes;
  *lease = new (std::nothrow) ApiLease(&kApi, *options, declared);
  return *lease != nullptr ? TANDEM_OK : TANDEM_INVALID;
}

}  // namespace
}  // namespace tandem::shim

extern "C" [[gnu::visibility("default")]] const tandem_api* tandem_find_api(uint32_t version) {
  return version == TANDEM_API_VERSION ? &tandem::shim::kApi : nullptr;
}

// For `tandem doctor`.
extern "C" [[gnu::visibility("default")]] const char* tandem_build() {
  return TANDEM_BUILD;
}
