// The options by which both programs find the API server.
#pragma once

#include <CLI/CLI.hpp>

#include "integrations/kubernetes/api_server.h"

namespace tandem::kubernetes {

// Adds --api, --ca, --token and --certificate. Their defaults are those of the pod.
inline void AddApiOptions(CLI::App& app, ApiAccess& access) {
  access = ApiAccess::OfPod();
  app.add_option("--api", access.url, "Kubernetes' API server; default: of the pod that runs this")
      ->type_name("URL");
  app.add_option("--ca", access.ca, "Certificates that the API server is checked with")
      ->type_name("FILE");
  app.add_option("--token", access.token, "Bearer token; read at each call")->type_name("FILE");
  app.add_option("--certificate", access.certificate, "Certificate and key of the client")
      ->type_name("FILE");
}

}  // namespace tandem::kubernetes
