#include "src/cli/share.h"

#include <fmt/core.h>

#include "src/base/user_name.h"
#include "src/cli/daemon.h"
#include "src/cli/environment.h"
#include "src/cli/listing.h"
#include "src/cli/print.h"

namespace tandem::cli {
namespace {

Result<std::string> Text(const ShareOptions& options) {
  ASSIGN_OR_RETURN(wire::Channel channel, ConnectRunning());
  if (options.share.empty()) {
    ASSIGN_OR_RETURN(const std::string all, AskForJson(&channel, wire::Query{"sessions"}));
    return options.json ? SharesJson(all) : SharesTable(all);
  }
  std::string whose = options.target;
  if (!options.user.empty()) {
    ASSIGN_OR_RETURN(const unsigned number, UserNumberOf(options.user));
    whose = "user:" + std::to_string(number);
  }
  const wire::Control order{"share", whose, 0, options.share};
  ASSIGN_OR_RETURN(const std::string answer, AskForJson(&channel, order));
  return options.json ? CompactJson(answer) : ShareChanges(answer);
}

}  // namespace

int ShowOrSetShare(const ShareOptions& options) {
  if (const auto gpu = SettleGpu(options.gpu); !gpu.ok()) return Fail(1, gpu.error().message);
  const Result<std::string> text = Text(options);
  if (!text.ok()) return Fail(1, text.error().message);
  return Print(*text + (options.json ? "\n" : ""));
}

}  // namespace tandem::cli
