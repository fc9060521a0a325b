// First come, first served: in the order of arrival.
#include "src/core/policy.h"

namespace tandem::core {
namespace {

class Fcfs : public Policy {
 public:
  int64_t Rank(const Wish& /*wish*/) override { return 0; }
};

}  // namespace

std::unique_ptr<Policy> MakePolicy(std::string_view name) {
  if (name == "fcfs") return std::make_unique<Fcfs>();
  return nullptr;
}

}  // namespace tandem::core
