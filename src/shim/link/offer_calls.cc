#include "src/shim/link/offer_calls.h"

#include <utility>
#include <vector>

#include "src/wire/channel.h"
#include "src/wire/runtime_dir.h"

namespace tandem::shim {
namespace {

// More than a daemon that has just started takes until it answers.
constexpr Duration kAnswerPatience = Seconds(5);

// The answer, if it is an M, and the descriptors that came with it.
template <typename M>
Result<std::vector<UniqueFd>> Ask(const wire::Message& question, std::vector<int> fds) {
  ASSIGN_OR_RETURN(wire::Channel channel, wire::ConnectDaemon(wire::SocketPath()));
  TRY(channel.Send(question, kAnswerPatience, std::move(fds)));
  const Result<wire::Message> answer = channel.Receive(kAnswerPatience);
  if (!answer.ok()) return Error{ErrorCode::kUnavailable, "the daemon does not answer"};
  if (const auto* refused = std::get_if<wire::Refused>(&*answer)) {
    const bool known = refused->code != static_cast<uint16_t>(wire::RefusalCode::kNoSession);
    return Error{known ? ErrorCode::kRefused : ErrorCode::kUnavailable, refused->reason};
  }
  if (!std::holds_alternative<M>(*answer)) {
    return Error{ErrorCode::kInvalid, "the daemon answered with something else"};
  }
  return channel.TakeFds();
}

}  // namespace

Status OfferMemory(const OfferToken& token, const std::string& device, const UniqueFd& memory) {
  const auto answer =
      Ask<wire::Offered>(wire::Offer{token.first, token.second, device}, {memory.get()});
  return answer.ok() ? Status() : Status(answer.error());
}

Result<UniqueFd> FetchMemory(const OfferToken& token) {
  ASSIGN_OR_RETURN(std::vector<UniqueFd> fds,
                   Ask<wire::Fetched>(wire::Fetch{token.first, token.second}, {}));
  if (fds.empty()) return Error{ErrorCode::kInvalid, "the daemon sent no memory"};
  return std::move(fds.front());
}

}  // namespace tandem::shim
