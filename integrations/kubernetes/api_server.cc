#include "integrations/kubernetes/api_server.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "integrations/kubernetes/http_library.h"
#include "src/base/json.h"

namespace tandem::kubernetes {
namespace {

constexpr char kAccount[] = "/var/run/secrets/kubernetes.io/serviceaccount/";
constexpr int kPatienceSeconds = 5;

std::string TextOf(const char* variable) {
  const char* const value = std::getenv(variable);
  return value == nullptr ? "" : value;
}

std::string Read(const std::string& path) {
  std::ifstream file(path);
  std::string text(std::istreambuf_iterator<char>(file), {});
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

// The API server tells its reasons in the object Status.
std::string Reason(const httplib::Response& answer) {
  const nlohmann::json status = ParseJson(answer.body);
  const std::string reason = status.is_object() ? status.value("message", "") : "";
  return reason.empty() ? "status " + std::to_string(answer.status) : reason;
}

}  // namespace

ApiAccess ApiAccess::OfPod() {
  ApiAccess access;
  const std::string host = TextOf("KUBERNETES_SERVICE_HOST");
  if (host.empty()) return access;
  const bool six = host.find(':') != std::string::npos;
  access.url =
      "https://" + (six ? "[" + host + "]" : host) + ":" + TextOf("KUBERNETES_SERVICE_PORT");
  access.ca = std::string(kAccount) + "ca.crt";
  access.token = std::string(kAccount) + "token";
  return access;
}

Status ApiServer::Post(const std::string& path, const nlohmann::json& body) const {
  TRY(Send(Method::kPost, path, "application/json", JsonText(body)));
  return {};
}

Result<nlohmann::json> ApiServer::Get(const std::string& path) const {
  ASSIGN_OR_RETURN(const std::string body, Send(Method::kGet, path, "", ""));
  nlohmann::json object = ParseJson(body);
  if (!object.is_object()) {
    return Error{ErrorCode::kInvalid,
                 "the API server at " + access_.url + " does not answer in JSON"};
  }
  return object;
}

Status ApiServer::Apply(const std::string& path, const nlohmann::json& object) const {
  TRY(Send(Method::kPatch, path + "?fieldManager=tandem&force=true", "application/apply-patch+yaml",
           JsonText(object)));
  return {};
}

Status ApiServer::MergePatch(const std::string& path, const nlohmann::json& body) const {
  TRY(Send(Method::kPatch, path, "application/merge-patch+json", JsonText(body)));
  return {};
}

Result<std::string> ApiServer::Send(Method method, const std::string& path, const std::string& kind,
                                    const std::string& body) const {
  for (const std::string& file : {access_.ca, access_.token, access_.certificate}) {
    std::error_code ignored;
    if (!file.empty() && !std::filesystem::exists(file, ignored)) {
      return Error{ErrorCode::kNotFound, "the file " + file + " is missing"};
    }
  }
  httplib::Client client(access_.url, access_.certificate, access_.certificate);
  if (!client.is_valid()) {
    return Error{ErrorCode::kInvalid, access_.url + " is no address of an API server"};
  }
  client.set_connection_timeout(kPatienceSeconds);
  client.set_read_timeout(kPatienceSeconds);
  client.set_write_timeout(kPatienceSeconds);
  if (!access_.ca.empty()) client.set_ca_cert_path(access_.ca);
  if (!access_.token.empty()) client.set_bearer_token_auth(Read(access_.token));
  const httplib::Result answer = method == Method::kGet    ? client.Get(path)
                                 : method == Method::kPost ? client.Post(path, body, kind)
                                                           : client.Patch(path, body, kind);
  if (!answer) {
    return Error{ErrorCode::kUnavailable, "the API server at " + access_.url +
                                              " does not answer: " + to_string(answer.error())};
  }
  if (answer->status < 200 || answer->status >= 300) {
    return Error{ErrorCode::kRefused, "the API server refuses: " + Reason(*answer)};
  }
  return answer->body;
}

}  // namespace tandem::kubernetes
