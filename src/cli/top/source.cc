#include "src/cli/top/source.h"

#include <fmt/core.h>

#include <utility>

#include "src/base/text.h"
#include "src/cli/daemon.h"
#include "src/wire/runtime_dir.h"

namespace tandem::cli::top {

void Source::Refresh(Model* model) {
  if (const Status taken = Ask(model); !taken.ok()) {
    channel_.Close();
    const ErrorCode code = taken.error().code;
    const bool away = code == ErrorCode::kNotFound || code == ErrorCode::kUnavailable;
    model->Lose(away ? fmt::format("No daemon runs at {}; {} starts one.", wire::SocketPath(),
                                   wire::RootStartsTheDaemon() ? "root" : "`tandem run`")
                     : EscapeText(taken.error().message));
  }
}

std::string Source::Give(const wire::Control& order) {
  if (!channel_) return "no daemon runs: the order was not given";
  const Result<std::string> answer = AskForJson(&channel_, order);
  if (answer.ok()) return order.what + ": ordered";
  if (answer.error().code != ErrorCode::kRefused) channel_.Close();
  return EscapeText(answer.error().message);
}

Status Source::Ask(Model* model) {
  if (!channel_) {
    ASSIGN_OR_RETURN(channel_, wire::ConnectDaemon(wire::SocketPath()));
  }
  ASSIGN_OR_RETURN(const std::string status, AskForJson(&channel_, wire::Query{"status"}));
  ASSIGN_OR_RETURN(const std::string sessions, AskForJson(&channel_, wire::Query{"sessions"}));
  return model->Take(status, sessions);
}

}  // namespace tandem::cli::top
