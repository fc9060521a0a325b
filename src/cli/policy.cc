#include "src/cli/policy.h"

#include "src/cli/daemon.h"
#include "src/cli/environment.h"
#include "src/cli/listing.h"
#include "src/cli/print.h"

namespace tandem::cli {
namespace {

Result<std::string> Show(const PolicyOptions& options) {
  ASSIGN_OR_RETURN(wire::Channel channel, ConnectRunning());
  ASSIGN_OR_RETURN(const std::string status, AskForJson(&channel, wire::Query{"status"}));
  return options.json ? PoliciesJson(status) : PoliciesText(status);
}

Result<std::string> Set(const PolicyOptions& options) {
  ASSIGN_OR_RETURN(wire::Channel channel, ConnectRunning());
  const wire::Control order{"policy", options.target, 0, options.policy};
  ASSIGN_OR_RETURN(const std::string answer, AskForJson(&channel, order));
  return options.json ? CompactJson(answer) : PolicyChanges(answer);
}

}  // namespace

int ShowOrSetPolicy(const PolicyOptions& options) {
  if (const auto gpu = ChooseGpu(options.gpu); !gpu.ok()) return Fail(gpu.error());
  const Result<std::string> text = options.policy.empty() ? Show(options) : Set(options);
  if (!text.ok()) return Fail(text.error());
  return Print(*text + (options.json ? "\n" : ""));
}

}  // namespace tandem::cli
