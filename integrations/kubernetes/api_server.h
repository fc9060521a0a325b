// A client of Kubernetes' API server, for the few calls that Tandem makes.
//
// Threading: any; each call has a connection of its own.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "src/base/result.h"

namespace tandem::kubernetes {

// What a pod's service account has in its files; elsewhere, what the options say.
struct ApiAccess {
  std::string url;          // "https://10.96.0.1:443"; empty: no API server
  std::string ca;           // a file of certificates; empty: those of the system
  std::string token;        // a file, read at each call since it is replaced; empty: none
  std::string certificate;  // a file with the client's certificate and key; empty: none

  // Of the pod that this process runs in; `url` is empty elsewhere.
  static ApiAccess OfPod();
};

class ApiServer {
 public:
  explicit ApiServer(ApiAccess access) : access_(std::move(access)) {}

  // The server's own words where it refuses.
  Status Post(const std::string& path, const nlohmann::json& body) const;
  Result<nlohmann::json> Get(const std::string& path) const;
  // Makes the object, or changes it to this (server-side apply).
  Status Apply(const std::string& path, const nlohmann::json& object) const;
  Status MergePatch(const std::string& path, const nlohmann::json& body) const;

 private:
  enum class Method { kGet, kPost, kPatch };

  // The body of the answer.
  Result<std::string> Send(Method method, const std::string& path, const std::string& kind,
                           const std::string& body) const;

  const ApiAccess access_;
};

}  // namespace tandem::kubernetes
