// The policies there are. What each does is said in its file.
#pragma once

#include <memory>

#include "src/core/policy.h"

namespace tandem::core {

std::unique_ptr<Policy> MakeFcfs(const TurnRules& rules);
std::unique_ptr<Policy> MakeInteractive(const TurnRules& rules);
std::unique_ptr<Policy> MakeNvshare(const TurnRules& rules);

}  // namespace tandem::core
