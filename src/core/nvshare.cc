// The rule of nvshare (Alexopoulos and Mitropoulos, "nvshare: Practical GPU Sharing Without Memory
// Size Constraints", ICSE-Companion 2024), to compare with: one program at a time has the card, for
// 30 s where others wait; one that has had nothing to do for 5 s gives it back.
#include "src/core/policies.h"

namespace tandem::core {
namespace {

constexpr Duration kTurn = Seconds(30);
constexpr Duration kIdle = Seconds(5);

class Nvshare : public Policy {
 public:
  using Policy::Policy;

  std::optional<Duration> TurnLength(Duration /*quantum*/) const override { return Scaled(kTurn); }
  Duration MayPause(const Contest& /*contest*/) const override { return Scaled(kIdle); }
  bool together() const override { return false; }
};

}  // namespace

std::unique_ptr<Policy> MakeNvshare(const PolicyContext& context) {
  return std::make_unique<Nvshare>(context.rules);
}

}  // namespace tandem::core
