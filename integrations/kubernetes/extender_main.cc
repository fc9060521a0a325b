// tandem-scheduler-extender: tells Kubernetes' scheduler which nodes have a GPU with enough room.
#include <fmt/core.h>
#include <openssl/evp.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "integrations/kubernetes/annotations.h"
#include "integrations/kubernetes/extender.h"
#include "integrations/kubernetes/http_library.h"
#include "integrations/kubernetes/options.h"
#include "integrations/kubernetes/upkeep.h"
#include "src/base/json.h"

namespace tandem::kubernetes {
namespace {

// A list of 5,000 nodes, each as the scheduler has it, is some 50 MB.
constexpr size_t kLongestBody = 256 << 20;

struct ExtenderOptions {
  std::string listen = "127.0.0.1:8890";
  std::string certificate, key;
  bool spread = false;
  std::string unit = "1G", gpu_memory;
  AnnotationRules annotations;
  ApiAccess api;
};

void Log(const std::string& text) {
  fmt::print(stderr, "tandem-scheduler-extender: {}\n", text);
}

Status Bind(const ApiServer& server, const Binding& binding) {
  const std::string space = binding.space.empty() ? "default" : binding.space;
  const nlohmann::json body = {
      {"apiVersion", "v1"},
      {"kind", "Binding"},
      {"metadata", {{"name", binding.pod}, {"namespace", space}, {"uid", binding.uid}}},
      {"target", {{"apiVersion", "v1"}, {"kind", "Node"}, {"name", binding.node}}}};
  const Status bound =
      server.Post("/api/v1/namespaces/" + space + "/pods/" + binding.pod + "/binding", body);
  Log(bound.ok() ? fmt::format("{}/{} goes to {}", space, binding.pod, binding.node)
                 : fmt::format("{}/{} does not go to {}: {}", space, binding.pod, binding.node,
                               bound.error().message));
  return bound;
}

using Answer = Result<nlohmann::json> (Extender::*)(const nlohmann::json& arguments,
                                                    Extender::Time now);

httplib::Server::Handler Handle(Extender* extender, Answer answer) {
  return [=](const httplib::Request& request, httplib::Response& response) {
    const nlohmann::json arguments = ParseJson(request.body);
    const Result<nlohmann::json> said =
        (extender->*answer)(arguments, std::chrono::steady_clock::now());
    if (!said.ok()) response.status = 400;
    const nlohmann::json body =
        said.ok() ? *said : nlohmann::json{{"error", "tandem: " + said.error().message}};
    response.set_content(JsonText(body), "application/json");
  };
}

// The API server reads a patch in base64.
std::string Base64(const std::string& text) {
  std::string encoded(4 * ((text.size() + 2) / 3), '\0');
  EVP_EncodeBlock(reinterpret_cast<unsigned char*>(encoded.data()),
                  reinterpret_cast<const unsigned char*>(text.data()),
                  static_cast<int>(text.size()));
  return encoded;
}

void Mutate(const AnnotationRules& rules, const httplib::Request& request,
            httplib::Response& response) {
  Result<nlohmann::json> answer = AnswerTo(ParseJson(request.body), rules);
  if (!answer.ok()) {
    response.status = 400;
    response.set_content(answer.error().message + "\n", "text/plain");
    return;
  }
  nlohmann::json& said = (*answer)["response"];
  if (said.contains("patch")) said["patch"] = Base64(JsonText(said["patch"]));
  response.set_content(answer->dump(-1, ' ', false, nlohmann::json::error_handler_t::replace),
                       "application/json");
}

Result<AnnotationRules> RulesOf(const ExtenderOptions& options) {
  AnnotationRules rules = options.annotations;
  ASSIGN_OR_RETURN(rules.unit, ParseSize(options.unit));
  if (rules.unit.count == 0) return Error{ErrorCode::kInvalid, "--unit: give a size, such as 1G"};
  if (!options.gpu_memory.empty()) {
    ASSIGN_OR_RETURN(rules.gpu, ParseSize(options.gpu_memory));
  }
  return rules;
}

int Serve(const ExtenderOptions& options) {
  const Result<AnnotationRules> rules = RulesOf(options);
  if (!rules.ok()) {
    Log(rules.error().message);
    return 2;
  }
  const size_t colon = options.listen.rfind(':');
  int port = 0;
  if (colon == std::string::npos ||
      !CLI::detail::lexical_cast(options.listen.substr(colon + 1), port) || port < 0 ||
      port > 65535) {
    Log("--listen: give ADDRESS:PORT, such as 127.0.0.1:8890");
    return 2;
  }
  if (options.api.url.empty()) {
    Log("--api: give the address of Kubernetes' API server, since this does not run in a pod");
    return 2;
  }
  const bool secure = !options.certificate.empty();
  const std::unique_ptr<httplib::Server> server =
      secure
          ? std::make_unique<httplib::SSLServer>(options.certificate.c_str(), options.key.c_str())
          : std::make_unique<httplib::Server>();
  if (!server->is_valid()) {
    Log("cannot use the certificate " + options.certificate + " with the key " + options.key);
    return 1;
  }
  const sigset_t ends = BlockEnds();

  const ApiServer api(options.api);
  Extender extender(options.spread ? Placement::kMostRoom : Placement::kBestFit,
                    [&](const Binding& binding) { return Bind(api, binding); });
  server->set_payload_max_length(kLongestBody);
  server->Post("/filter", Handle(&extender, &Extender::Filter));
  server->Post("/prioritize", Handle(&extender, &Extender::Prioritize));
  server->Post("/bind", Handle(&extender, &Extender::Bind));
  server->Post("/mutate", [&](const httplib::Request& request, httplib::Response& response) {
    Mutate(*rules, request, response);
  });
  server->Get("/healthz", [](const httplib::Request&, httplib::Response& response) {
    response.set_content("ok\n", "text/plain");
  });
  const std::string address = options.listen.substr(0, colon);
  const int bound = port == 0 ? server->bind_to_any_port(address) : port;
  if (bound < 0 || (port != 0 && !server->bind_to_port(address, port))) {
    Log("cannot listen at " + options.listen);
    return 1;
  }
  std::thread listening([&] { server->listen_after_bind(); });
  Log(fmt::format("listens at {}:{}", address, bound));
  int number = 0;
  sigwait(&ends, &number);
  server->stop();
  listening.join();
  return 0;
}

}  // namespace
}  // namespace tandem::kubernetes

int main(int argc, char** argv) {
  tandem::kubernetes::ExtenderOptions options;
  CLI::App app("Tells Kubernetes' scheduler which nodes have a GPU with enough room for a pod.");
  app.add_option("--listen", options.listen, "Where the scheduler asks")
      ->type_name("ADDRESS:PORT")
      ->capture_default_str();
  app.add_flag("--spread", options.spread,
               "Prefer the GPU with the most room, not the fullest with enough");
  app.add_option("--unit", options.unit,
                 "Memory of one tandem.dev/gpu-memory, as the plugin has it")
      ->type_name("SIZE")
      ->capture_default_str();
  app.add_option("--gpu-memory", options.gpu_memory,
                 "Memory of a GPU, of which KAI's annotation gpu-fraction is a part")
      ->type_name("SIZE");
  app.add_option("--scheduler", options.annotations.scheduler,
                 "Scheduler of pods that name KAI's and have its annotations")
      ->type_name("NAME")
      ->capture_default_str();
  CLI::Option* const certificate =
      app.add_option("--tls-certificate", options.certificate, "Answer by HTTPS, with this")
          ->type_name("FILE")
          ->check(CLI::ExistingFile);
  CLI::Option* const key = app.add_option("--tls-key", options.key, "The certificate's key")
                               ->type_name("FILE")
                               ->check(CLI::ExistingFile);
  certificate->needs(key);
  key->needs(certificate);
  tandem::kubernetes::AddApiOptions(app, options.api);
  app.footer(
      "The scheduler's configuration names it as an extender with the verbs filter, prioritize and "
      "bind.\n"
      "integrations/kubernetes/README.md has the steps.\n"
      "\n"
      "Examples:\n"
      "  tandem-scheduler-extender --listen 0.0.0.0:8890\n"
      "  tandem-scheduler-extender --api https://10.0.0.1:6443 --ca ca.crt --certificate "
      "client.pem");
  if (const auto status = tandem::kubernetes::Parse(app, argc, argv)) return *status;
  return tandem::kubernetes::Serve(options);
}
