#include "src/shim/api/wait_watch.h"

#include <utility>

#include "src/wire/runtime_dir.h"

namespace tandem::shim {
namespace {

constexpr Duration kConnectPeriod = Seconds(1);

}  // namespace

std::optional<wire::Waiting> WaitWatch::Poll(Instant now) {
  if (!channel_ && now >= connect_at_) {
    connect_at_ = now + kConnectPeriod;
    Result<wire::Channel> channel = wire::ConnectDaemon(wire::SocketPath());
    if (channel.ok() && channel->Send(wire::WatchWaits{}, Duration()).ok()) {
      channel_ = std::move(*channel);
    }
  }
  std::optional<wire::Waiting> latest;
  while (channel_) {
    Result<wire::Message> message = channel_.Receive(Duration());
    if (!message.ok()) {
      if (message.error().code != ErrorCode::kNotFound) channel_.Close();
      break;
    }
    if (const auto* waiting = std::get_if<wire::Waiting>(&*message)) latest = *waiting;
  }
  return latest;
}

}  // namespace tandem::shim
