#include "src/wire/messages.h"

#include <utility>

namespace tandem::wire {

template <typename Kind>
requires kIsKindOf<Kind, AnyKind> Message::Message(Kind kind) : AnyKind(std::move(kind)) {}
Message::Message(const Message&) = default;
Message::Message(Message&&) noexcept = default;
Message& Message::operator=(const Message&) = default;
Message& Message::operator=(Message&&) noexcept = default;
Message::~Message() = default;

uint16_t Message::SinceVersion() const {
  return std::visit(
      [](const auto& m) -> uint16_t {
        using M = std::decay_t<decltype(m)>;
        if constexpr (requires { M::kSince; }) return M::kSince;
        return kOldestVersion;
      },
      static_cast<const AnyKind&>(*this));
}

template Message::Message(Register);
template Message::Message(Reserve);
template Message::Message(ContextWanted);
template Message::Message(ContextGone);
template Message::Message(Ready);
template Message::Message(Running);
template Message::Message(Restored);
template Message::Message(Idle);
template Message::Message(Active);
template Message::Message(Released);
template Message::Message(Busy);
template Message::Message(Evicted);
template Message::Message(FixedWanted);
template Message::Message(FixedGone);
template Message::Message(Declare);
template Message::Message(NotReady);
template Message::Message(Leave);
template Message::Message(NotMoved);
template Message::Message(Move);
template Message::Message(FixedReserved);
template Message::Message(Registered);
template Message::Message(Reserved);
template Message::Message(ContextReserved);
template Message::Message(Grant);
template Message::Message(Credit);
template Message::Message(Revoke);
template Message::Message(Evict);
template Message::Message(Contended);
template Message::Message(EndProgram);
template Message::Message(RunBegin);
template Message::Message(WatchWaits);
template Message::Message(Waiting);
template Message::Message(EndWait);
template Message::Message(RunStarted);
template Message::Message(Query);
template Message::Message(Answer);
template Message::Message(Control);
template Message::Message(RunChanged);
template Message::Message(RunQuery);
template Message::Message(RunShown);
template Message::Message(Withdraw);
template Message::Message(Offer);
template Message::Message(Offered);
template Message::Message(Fetch);
template Message::Message(Fetched);
template Message::Message(Refused);

}  // namespace tandem::wire
