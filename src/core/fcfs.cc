// First come, first served: in the order of arrival. A busy holder is not interrupted: a program
// that never pauses keeps the card. It is what the closed forms of `tandem plan` describe.
#include "src/core/policies.h"

namespace tandem::core {
namespace {

class Fcfs : public Policy {
 public:
  using Policy::Policy;

  std::optional<Duration> TurnLength(Duration /*quantum*/) const override { return std::nullopt; }
};

}  // namespace

std::unique_ptr<Policy> MakeFcfs(const PolicyContext& context) {
  return std::make_unique<Fcfs>(context.rules);
}

}  // namespace tandem::core
