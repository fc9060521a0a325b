// Attributes of launches, kernel nodes and streams. Those that say where or how soon a card may do
// something are hints: they are checked and kept for queries, and change nothing here.
//
// Threading: plain values and functions.
#pragma once

#include <map>
#include <optional>
#include <span>

#include "src/cuda/driver_types.h"

namespace tandem::soft {

using Hints = std::map<CUlaunchAttributeID, CUlaunchAttributeValue>;

// Whether a value is one that the attribute can have here.
CUresult CheckAttribute(CUlaunchAttributeID attribute, const CUlaunchAttributeValue& value);

// What the attributes of a launch ask for beside its shape.
struct LaunchOptions {
  bool cooperative = false;
  CUevent completion = nullptr;  // recorded when the launch is done
  std::optional<int> priority;
  Hints hints;
};
CUresult ReadAttributes(std::span<const CUlaunchAttribute> attributes, LaunchOptions* options);

}  // namespace tandem::soft
