#include "src/cli/share.h"

#include <fmt/core.h>

#include "src/base/user_name.h"
#include "src/cli/daemon.h"
#include "src/cli/environment.h"
#include "src/cli/listing.h"
#include "src/cli/print.h"
#include "src/core/share_text.h"

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

CLI::Validator IsShare() {
  const auto check = [](std::string& text) {
    return core::ParseShare(text).has_value() ? "" : core::NoShareText(text);
  };
  return {check, ""};
}

int ShowOrSetShare(const ShareOptions& options) {
  if (const auto gpu = ChooseGpu(options.gpu); !gpu.ok()) return Fail(gpu.error());
  const Result<std::string> text = Text(options);
  if (!text.ok()) return Fail(text.error());
  return Print(*text + (options.json ? "\n" : ""));
}

}  // namespace tandem::cli
