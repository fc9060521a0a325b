#include "src/cli/containers/container.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "src/cli/fields.h"

namespace tandem::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr size_t kShortId = 12;

std::string Contents(const fs::path& file) {
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

// The host's number of a user of the container (OCI runtime specification, "User namespace
// mappings").
unsigned HostUser(unsigned user, const Json& config) {
  for (const Json& range : List(Member(config, "linux"), "uidMappings")) {
    const auto inside = Number(Member(range, "containerID"));
    const auto size = Number(Member(range, "size"));
    if (user >= inside && user < inside + size) {
      return static_cast<unsigned>(Number(Member(range, "hostID")) + (user - inside));
    }
  }
  return user;
}

}  // namespace

Result<Container> ReadContainer(const std::string& state) {
  ASSIGN_OR_RETURN(const Json told, Parse(state));
  Container container;
  container.id = RawText(told, "id");
  if (container.id.empty()) {
    return Error{ErrorCode::kInvalid, "the container runtime told no id on standard input"};
  }
  container.name = container.id.substr(0, kShortId);
  const int pid = static_cast<int>(Number(Member(told, "pid")));
  if (pid > 0) container.cgroup = OwnCgroup(Contents("/proc/" + std::to_string(pid) + "/cgroup"));
  // The runtime's own: so it is for users' own containers on cgroups of version 1.
  if (container.cgroup == OwnCgroup(Contents("/proc/self/cgroup"))) container.cgroup.clear();
  const fs::path bundle = RawText(told, "bundle");
  const Result<Json> config = Parse(Contents(bundle / "config.json"));
  if (!config.ok()) return container;
  if (const std::string host = RawText(*config, "hostname"); !host.empty()) container.name = host;
  const Json& user = Member(Member(*config, "process"), "user");
  container.uid = HostUser(static_cast<unsigned>(Number(Member(user, "uid"))), *config);
  const fs::path root = RawText(Member(*config, "root"), "path");
  container.root = root.is_absolute() ? root : bundle / root;
  return container;
}

std::string OwnCgroup(const std::string& cgroups) {
  std::istringstream lines(cgroups);
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    std::string path = line.substr(second + 1);
    if (path.size() > 1) return path;
  }
  return {};
}

int HighestGlibc(const std::string& file) {
  constexpr std::string_view kName = "GLIBC_2.";
  constexpr size_t kNames = size_t{1} << 20;  // where a library has its names: at its beginning
  std::string bytes(kNames, '\0');
  std::ifstream library(file);
  library.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  bytes.resize(static_cast<size_t>(library.gcount()));
  int highest = 0;
  for (size_t at = 0; (at = bytes.find(kName, at)) != std::string::npos;) {
    at += kName.size();
    int minor = 0;
    std::from_chars(bytes.data() + at, bytes.data() + bytes.size(), minor);
    highest = std::max(highest, minor);
  }
  return highest;
}

Status CheckLibc(const Container& container, const std::string& shim) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(container.root + "/lib", error)) {
    if (!entry.path().filename().string().starts_with("ld-musl")) continue;
    return Error{ErrorCode::kUnsupported,
                 "this image uses musl, as Alpine does. Tandem and NVIDIA's libraries need glibc: "
                 "use an image of Debian, Ubuntu or Red Hat"};
  }
  const int needed = HighestGlibc(shim);
  // /lib may be a link to usr/lib: one that is absolute would lead to the host's.
  for (const char* folder : {"/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/lib/x86_64-linux-gnu"}) {
    const int has = HighestGlibc(container.root + folder + "/libc.so.6");
    if (has == 0 || has >= needed) continue;
    return Error{ErrorCode::kUnsupported,
                 fmt::format("this image has glibc 2.{}, and Tandem's library was built for 2.{}: "
                             "use a newer image, or build Tandem on an older system",
                             has, needed)};
  }
  return {};
}

}  // namespace tandem::cli
