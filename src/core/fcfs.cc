// First come, first served: in the order of arrival.
#include <algorithm>

#include "src/core/policy.h"

namespace tandem::core {
namespace {

class Fcfs : public Policy {
 public:
  void Order(std::vector<Wish>& wishes) const override {
    std::sort(wishes.begin(), wishes.end(),
              [](const Wish& a, const Wish& b) { return a.ticket < b.ticket; });
  }
};

}  // namespace

std::unique_ptr<Policy> MakePolicy(std::string_view name) {
  if (name == "fcfs") return std::make_unique<Fcfs>();
  return nullptr;
}

}  // namespace tandem::core
