#include "integrations/slurm/terms.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <system_error>

#include "src/core/class_names.h"
#include "src/core/share_text.h"

namespace tandem::slurm {
namespace {

Error Invalid(std::string message) {
  return {ErrorCode::kInvalid, std::move(message)};
}

std::optional<double> NumberOf(std::string_view text) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end || !std::isfinite(number)) return std::nullopt;
  return number;
}

Result<Bytes> SizeOf(std::string_view text, std::string_view whole) {
  const Result<Bytes> size = ParseSize(text);
  if (size.ok() && size->count > 0) return size;
  return Invalid("--gpu-mem=" + std::string(whole) +
                 ": give a size such as 20G, or 20G:40G for a limit above it");
}

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

using ByName = std::map<std::string, std::string, std::less<>>;

// What the job says, else what its QOS has, else its account, else its partition.
std::string Chosen(const std::string& said, const Job& job, const Settings& settings,
                   ByName Settings::Defaults::*which) {
  if (!said.empty()) return said;
  const std::pair<const std::string&, const Settings::Defaults&> places[] = {
      {job.qos, settings.of_qos},
      {job.account, settings.of_accounts},
      {job.partition, settings.of_partitions}};
  for (const auto& [name, defaults] : places) {
    const auto found = (defaults.*which).find(name);
    if (found != (defaults.*which).end()) return found->second;
  }
  return {};
}

Status TakeSetting(std::string_view name, std::string_view value, Settings* settings) {
  struct Default {
    std::string_view prefix;
    Status (*check)(std::string_view);
    ByName* by_name;
  };
  for (const Default& each : {Default{"class.", CheckClass, &settings->of_partitions.classes},
                              Default{"share.", CheckShare, &settings->of_partitions.shares},
                              Default{"account-class.", CheckClass, &settings->of_accounts.classes},
                              Default{"account-share.", CheckShare, &settings->of_accounts.shares},
                              Default{"qos-class.", CheckClass, &settings->of_qos.classes},
                              Default{"qos-share.", CheckShare, &settings->of_qos.shares}}) {
    if (!name.starts_with(each.prefix)) continue;
    TRY(each.check(value));
    each.by_name->emplace(name.substr(each.prefix.size()), value);
    return {};
  }
  if (name == "oversubscribe") {
    const std::optional<double> factor = NumberOf(value);
    if (!factor.has_value() || *factor < 1) {
      return Invalid("oversubscribe=" + std::string(value) + ": give a number from 1, such as 2");
    }
    settings->oversubscribe = *factor;
  } else if (name == "tandem") {
    settings->tandem = value;
  } else if (name == "cgroup") {
    if (!value.starts_with('/') || value.find("%j") == std::string_view::npos) {
      return Invalid("cgroup=" + std::string(value) +
                     ": give the path of a job's cgroup, such as /slurm/uid_%u/job_%j");
    }
    settings->cgroup = value;
  } else if (name.starts_with("env.") && name.size() > 4) {
    settings->environment.emplace_back(name.substr(4), value);
  } else {
    return Invalid(
        "\"" + std::string(name) +
        "\" is no argument: there are oversubscribe, tandem, cgroup, env.NAME, "
        "class.PARTITION, share.PARTITION, account-class.ACCOUNT, account-share.ACCOUNT, "
        "qos-class.QOS and qos-share.QOS");
  }
  return {};
}

}  // namespace

Result<Memory> ParseMemory(std::string_view text) {
  const size_t colon = text.find(':');
  Memory memory;
  ASSIGN_OR_RETURN(memory.scheduled, SizeOf(text.substr(0, colon), text));
  memory.limit = memory.scheduled;
  if (colon == std::string_view::npos) return memory;
  ASSIGN_OR_RETURN(memory.limit, SizeOf(text.substr(colon + 1), text));
  if (memory.limit < memory.scheduled) {
    return Invalid("--gpu-mem=" + std::string(text) + ": the limit is below the size");
  }
  return memory;
}

Status CheckClass(std::string_view text) {
  if (core::ClassNamed(text).has_value()) return {};
  std::string names;
  for (const std::string_view name : core::kClassNames) {
    names += (names.empty() ? "" : ", ") + std::string(name);
  }
  return Invalid("\"" + std::string(text) + "\" is no class of work: there are " + names);
}

Status CheckShare(std::string_view text) {
  if (core::ParseShare(text).has_value()) return {};
  return Invalid(core::NoShareText(text));
}

Result<Settings> ParseSettings(const std::vector<std::string_view>& arguments) {
  Settings settings;
  for (const std::string_view argument : arguments) {
    const size_t equals = argument.find('=');
    const bool has_value = equals != std::string_view::npos;
    TRY(TakeSetting(argument.substr(0, equals), has_value ? argument.substr(equals + 1) : "",
                    &settings));
  }
  return settings;
}

std::string Filled(std::string_view text, const std::map<char, std::string>& values) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool marked = text[i] == '%' && i + 1 < text.size();
    const auto value = marked ? values.find(text[i + 1]) : values.end();
    if (value == values.end()) {
      result += text[i];
    } else {
      result += value->second;
      ++i;
    }
  }
  return result;
}

std::vector<std::string> LeaseWords(const Job& job, const Settings& settings) {
  const auto guaranteed = static_cast<uint64_t>(static_cast<double>(job.memory.scheduled.count) /
                                                settings.oversubscribe);
  std::vector<std::string> words = {"lease",
                                    "create",
                                    "--job",
                                    job.id,
                                    "--user",
                                    job.uid,
                                    "--memory-request",
                                    std::to_string(guaranteed) + "B",
                                    "--memory-limit",
                                    std::to_string(job.memory.limit.count) + "B"};
  const auto add = [&](const char* option, const std::string& value) {
    if (!value.empty()) words.insert(words.end(), {option, value});
  };
  for (const std::string_view gpu : Split(job.gpus, ',')) add("--gpu", std::string(gpu));
  add("--class", Chosen(job.of_class, job, settings, &Settings::Defaults::classes));
  add("--compute-share", Chosen(job.share, job, settings, &Settings::Defaults::shares));
  add("--project", job.account);
  add("--cgroup", Filled(settings.cgroup, {{'n', job.node}, {'u', job.uid}, {'j', job.id}}));
  return words;
}

std::string PutFirst(std::string_view item, std::string_view list) {
  std::string result(item);
  for (const std::string_view other : Split(list, ':')) {
    if (!other.empty() && other != item) result += ":" + std::string(other);
  }
  return result;
}

}  // namespace tandem::slurm
