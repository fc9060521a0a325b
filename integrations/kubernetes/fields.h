// Reads fields of Kubernetes' objects, which may lack any of them, and words errors for people.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "src/base/result.h"

namespace tandem::kubernetes {

// Empty where the object has no such text.
inline std::string TextOf(const nlohmann::json& object, const char* name) {
  if (!object.is_object()) return {};
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// What a pod's events show of the reason.
inline Error Wrong(const std::string& why) {
  return {ErrorCode::kInvalid, "tandem: " + why};
}

}  // namespace tandem::kubernetes
