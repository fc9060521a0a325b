// The options that the programs for Kubernetes share.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>

#include "integrations/kubernetes/api_server.h"
#include "integrations/kubernetes/node_gpus.h"

namespace tandem::kubernetes {

// An address such as https://10.0.0.1:6443.
inline CLI::Validator IsApiUrl() {
  return CLI::Validator(
      [](const std::string& url) -> std::string {
        for (const std::string scheme : {"https://", "http://"}) {
          const bool has_host = url.size() > scheme.size() && url[scheme.size()] != '/';
          if (url.compare(0, scheme.size(), scheme) == 0 && has_host) return "";
        }
        return "give an address such as https://10.0.0.1:6443";
      },
      "");
}

// Adds --api, --ca, --token and --certificate. Their defaults are those of the pod.
inline void AddApiOptions(CLI::App& app, ApiAccess& access) {
  access = ApiAccess::OfPod();
  app.add_option("--api", access.url, "Kubernetes' API server; default: of the pod that runs this")
      ->type_name("URL")
      ->check(IsApiUrl());
  app.add_option("--ca", access.ca, "Certificates that the API server is checked with")
      ->type_name("FILE")
      ->check(CLI::ExistingFile);
  app.add_option("--token", access.token, "Bearer token; read at each call")
      ->type_name("FILE")
      ->check(CLI::ExistingFile);
  app.add_option("--certificate", access.certificate, "Certificate and key of the client")
      ->type_name("FILE")
      ->check(CLI::ExistingFile);
}

// Adds the options of the node's GPUs that both programs on a node have.
inline void AddGpuOptions(CLI::App& app, NodeOptions& gpus) {
  app.add_option("--unit", gpus.unit, "The least memory that a container may have, and its step")
      ->type_name("SIZE")
      ->capture_default_str();
  app.add_option("--oversubscribe", gpus.oversubscribe,
                 "Offer this many times the memory; the rest waits on the host")
      ->check(CLI::Range(1.0, 100.0))
      ->capture_default_str();
  app.add_option("--cdi", gpus.specification, "Where the CDI specification is written")
      ->type_name("FILE")
      ->capture_default_str();
  app.add_option("--kind", gpus.kind, "Vendor and class of the CDI devices")
      ->type_name("VENDOR/CLASS")
      ->capture_default_str();
  app.add_option("--tandem", gpus.tandem, "The command `tandem`; default: of this installation")
      ->type_name("PATH");
}

inline Result<Bytes> UnitOf(const NodeOptions& gpus) {
  const Result<Bytes> unit = ParseSize(gpus.unit);
  if (unit.ok() && unit->count != 0 && unit->count % MiB(1).count == 0) return unit;
  return Error{ErrorCode::kInvalid, "--unit: give whole MiB, such as 1G or 512M"};
}

// The status with which the program ends, if it is not to go on: 2 after a mistake.
inline std::optional<int> Parse(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return std::nullopt;
}

}  // namespace tandem::kubernetes
