#include "src/cli/environment.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

namespace tandem::cli {
namespace {

// What the dynamic loader splits each list at.
constexpr std::string_view kPreloadSeparators = ": ";
constexpr std::string_view kPathSeparators = ":;";

bool IsNamed(const std::string& entry, std::string_view name) {
  return entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=';
}

void Unset(Environment* environment, std::string_view name) {
  std::erase_if(*environment, [&](const std::string& entry) { return IsNamed(entry, name); });
}

void Set(Environment* environment, std::string_view name, const std::string& value) {
  Unset(environment, name);
  environment->push_back(std::string(name) + "=" + value);
}

// `list` without `item`, joined by ':'. Empty items stay: in LD_LIBRARY_PATH they mean something.
std::string Without(std::string_view list, std::string_view item, std::string_view separators) {
  std::string kept;
  bool first = true;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find_first_of(separators, begin), list.size());
    const std::string_view part = list.substr(begin, end - begin);
    begin = end + 1;
    if (part == item) continue;
    if (!first) kept += ':';
    kept += part;
    first = false;
  }
  return kept;
}

void Remove(Environment* environment, std::string_view name, std::string_view item,
            std::string_view separators) {
  const std::optional<std::string> list = Lookup(*environment, name);
  if (!list) return;
  const std::string kept = Without(*list, item, separators);
  if (kept.empty() && *list == item) {
    Unset(environment, name);
  } else {
    Set(environment, name, kept);
  }
}

Status PutFirst(Environment* environment, std::string_view name, const std::string& item,
                std::string_view separators) {
  if (item.find_first_of(separators) != std::string::npos) {
    return Error{ErrorCode::kInvalid, "Tandem lies in '" + item + "', and " + std::string(name) +
                                          " cannot hold such a path; move it to one without "
                                          "spaces, colons and semicolons"};
  }
  Remove(environment, name, item, separators);
  const std::optional<std::string> rest = Lookup(*environment, name);
  Set(environment, name, rest && !rest->empty() ? item + ":" + *rest : item);
  return {};
}

const char* NameOf(Gpu gpu) {
  return gpu == Gpu::kSoft ? "soft" : "cuda";
}

Status SetGpu(Environment* environment, const Layout& layout, Gpu gpu) {
  Set(environment, "TANDEM_GPU", NameOf(gpu));
  if (gpu == Gpu::kSoft) {
    return PutFirst(environment, "LD_LIBRARY_PATH", layout.soft_dir, kPathSeparators);
  }
  Remove(environment, "LD_LIBRARY_PATH", layout.soft_dir, kPathSeparators);
  return {};
}

}  // namespace

Environment OwnEnvironment() {
  Environment environment;
  for (char** entry = environ; *entry != nullptr; ++entry) environment.emplace_back(*entry);
  return environment;
}

std::optional<std::string> Lookup(const Environment& environment, std::string_view name) {
  for (const std::string& entry : environment) {
    if (IsNamed(entry, name)) return entry.substr(name.size() + 1);
  }
  return std::nullopt;
}

Result<Environment> SharedEnvironment(Environment environment, const Layout& layout, Gpu gpu,
                                      uint64_t run) {
  TRY(SetGpu(&environment, layout, gpu));
  TRY(PutFirst(&environment, "LD_PRELOAD", layout.shim, kPreloadSeparators));
  Set(&environment, "TANDEM_RUN", std::to_string(run));
  return environment;
}

void SetRunName(Environment* environment, const std::string& name) {
  Set(environment, "TANDEM_NAME", name);
}

void SetDevicePriority(Environment* environment, std::string_view of_class) {
  constexpr const char* kVariable = "TANDEM_SOFT_PRIORITY";
  const int most = of_class == "production" ? 10 : of_class == "opportunistic" ? -10 : 0;
  const std::optional<std::string> set = Lookup(*environment, kVariable);
  int priority = most;
  if (set.has_value()) {
    const char* const end = set->data() + set->size();
    const auto [stop, error] = std::from_chars(set->data(), end, priority);
    if (error != std::errc() || stop != end) return;  // the software GPU says what is wrong with it
  }
  if (!set.has_value() && most == 0) return;
  Set(environment, kVariable, std::to_string(std::min(priority, most)));
}

Result<Environment> BareEnvironment(Environment environment, const Layout& layout, Gpu gpu) {
  TRY(SetGpu(&environment, layout, gpu));
  Remove(&environment, "LD_PRELOAD", layout.shim, kPreloadSeparators);
  Unset(&environment, "TANDEM_RUN");
  Unset(&environment, "TANDEM_NAME");
  return environment;
}

std::vector<char*> ExecPointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& string : strings) pointers.push_back(const_cast<char*>(string.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

Result<GpuChoice> ChooseGpu(const std::optional<std::string>& asked,
                            const std::function<cuda::DriverState()>& driver) {
  if (!asked || asked->empty()) {
    const cuda::DriverState state = driver();
    const bool none = state.kind == cuda::DriverState::Kind::kNone;
    return GpuChoice{none ? Gpu::kSoft : Gpu::kCuda, true, state.why};
  }
  if (*asked == "soft") return GpuChoice{Gpu::kSoft, false, ""};
  if (*asked == "cuda") return GpuChoice{Gpu::kCuda, false, ""};
  return Error{ErrorCode::kInvalid, "no kind of GPU is called '" + *asked + "'; use soft or cuda"};
}

cuda::DriverState NvidiaDriver() {
  const bool module_loaded =
      access("/dev/nvidiactl", F_OK) == 0 || access("/proc/driver/nvidia/version", F_OK) == 0;
  if (module_loaded) return {cuda::DriverState::Kind::kWorks, ""};
  return cuda::AskDriver();
}

Result<GpuChoice> ChooseGpu(const std::optional<std::string>& asked) {
  const char* set = std::getenv("TANDEM_GPU");
  const auto inherited = set != nullptr ? std::optional<std::string>(set) : std::nullopt;
  ASSIGN_OR_RETURN(GpuChoice choice, ChooseGpu(asked ? asked : inherited, NvidiaDriver));
  setenv("TANDEM_GPU", NameOf(choice.gpu), 1);
  return choice;
}

}  // namespace tandem::cli
