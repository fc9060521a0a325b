// The policies there are. What each does is said in its file.
#pragma once

#include <memory>

#include "src/core/policy.h"

namespace tandem::core {

std::unique_ptr<Policy> MakeFair(const PolicyContext& context);
std::unique_ptr<Policy> MakeFcfs(const PolicyContext& context);
std::unique_ptr<Policy> MakeInteractive(const PolicyContext& context);
std::unique_ptr<Policy> MakePriority(const PolicyContext& context);
std::unique_ptr<Policy> MakeNvshare(const PolicyContext& context);

}  // namespace tandem::core
