// The cards: other programs on them, and modes in which they cannot be shared.
#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "src/cli/doctor/checks.h"
#include "src/cli/fields.h"

namespace tandem::cli {
namespace {

using Json = nlohmann::json;

constexpr size_t kMostNamed = 8;  // processes

// "gpu0", as `tandem status` counts.
std::string NameOf(const Machine& machine, const CardFacts& card) {
  for (const Json& gpu : List(machine.daemon.status, "gpus")) {
    if (RawText(gpu, "uuid") == card.uuid) return "gpu" + Text(Member(gpu, "index"));
  }
  return "card " + Outside(card.uuid);
}

std::set<int> PidsOfSessions(const Machine& machine) {
  std::set<int> pids;
  for (const Json& session : List(machine.daemon.sessions, "sessions")) {
    const Json& pid = Member(session, "pid");
    if (pid.is_number_integer()) pids.insert(pid.get<int>());
  }
  return pids;
}

std::string Join(const std::vector<int>& pids) {
  std::string text;
  for (size_t i = 0; i < std::min(pids.size(), kMostNamed); ++i) {
    text += (i == 0 ? "" : ",") + std::to_string(pids[i]);
  }
  return text;
}

// The daemon counts what they have, also where NVML names none of them.
Findings CheckForeignMemory(const Machine& machine) {
  Findings findings;
  for (const Json& gpu : List(machine.daemon.status, "gpus")) {
    const Bytes foreign = RawBytes(gpu, "foreign_bytes");
    if (foreign == Bytes()) continue;
    findings.push_back(Note("other_memory",
                            fmt::format("Programs outside Tandem hold {} of gpu{}.",
                                        FormatBytes(foreign), Text(Member(gpu, "index"))),
                            "start all programs that use the GPU with `tandem run`"));
  }
  return findings;
}

// Why NVML says nothing.
const char* WhyUnknown(const Machine& machine) {
  if (machine.gpu == Gpu::kSoft && machine.daemon.status.is_null()) {
    return "Not looked for without a daemon.";
  }
  return "Not looked for: NVML does not answer.";
}

}  // namespace

Findings CheckCards(const Machine& machine) {
  const auto& gpus = List(machine.daemon.status, "gpus");
  if (gpus.empty()) return {Fine("cards_unknown", "Without a daemon, the cards are not known.")};
  Findings findings;
  Bytes sum;
  for (const Json& gpu : gpus) {
    const Bytes budget = RawBytes(gpu, "budget_bytes");
    sum += budget;
    if (budget > Bytes()) continue;
    const bool soft = Member(gpu, "software") == true;
    findings.push_back(
        Problem("nothing_to_share",
                fmt::format("Contexts and programs outside Tandem take all {} of gpu{}.",
                            FormatBytes(RawBytes(gpu, "card_bytes")), Text(Member(gpu, "index"))),
                soft ? "make it larger, `tandem gpu soft --memory 4G`, and restart the daemon"
                     : "end programs outside Tandem"));
  }
  if (!findings.empty()) return findings;
  return {Fine("cards_fine", fmt::format("{} GPU{} with {} to share.", gpus.size(),
                                         gpus.size() == 1 ? "" : "s", FormatBytes(sum)))};
}

Findings CheckOtherPrograms(const Machine& machine) {
  Findings findings;
  const std::set<int> own = PidsOfSessions(machine);
  if (!machine.cards) {
    findings = CheckForeignMemory(machine);
    if (!findings.empty()) return findings;
    return {Fine("other_programs_unknown", WhyUnknown(machine))};
  }
  for (const CardFacts& card : *machine.cards) {
    std::vector<int> pids;
    Bytes sum;
    for (const auto& [pid, bytes] : card.processes) {
      if (own.count(pid) != 0) continue;
      pids.push_back(pid);
      sum += bytes;
    }
    if (pids.empty()) continue;
    findings.push_back(Note(
        "other_programs",
        fmt::format("{} program{} outside Tandem hold{} {} of {}.", pids.size(),
                    pids.size() == 1 ? "" : "s", pids.size() == 1 ? "s" : "", FormatBytes(sum),
                    NameOf(machine, card)),
        fmt::format("see them with `ps -p {}`, and start them with `tandem run`", Join(pids))));
  }
  if (!findings.empty()) return findings;
  return {Fine("no_other_programs", "No program outside Tandem uses a GPU.")};
}

Findings CheckMps(const Machine& machine) {
  const auto set = Lookup(machine.environment, "CUDA_MPS_PIPE_DIRECTORY");
  const std::string directory = set && !set->empty() ? *set : "/tmp/nvidia-mps";
  if (machine.gpu == Gpu::kSoft || !Exists(machine, directory + "/control")) {
    return {Fine("no_mps", "No MPS server.")};
  }
  return {Warning("mps",
                  fmt::format("NVIDIA's MPS control has its pipe in {}: Tandem has not been tried "
                              "with MPS.",
                              Outside(directory)),
                  "end MPS: `echo quit | nvidia-cuda-mps-control`")};
}

Findings CheckCardModes(const Machine& machine) {
  Findings findings;
  if (!machine.cards) {
    return {Fine("card_modes_unknown", WhyUnknown(machine))};
  }
  for (const CardFacts& card : *machine.cards) {
    const std::string name = NameOf(machine, card);
    const std::string uuid = Outside(card.uuid);
    const int mode = card.modes.compute.value_or(0);
    if (mode == cuda::kComputeProhibited) {
      findings.push_back(Problem("compute_prohibited",
                                 fmt::format("{} is in compute mode PROHIBITED.", name),
                                 fmt::format("as root: `nvidia-smi -i {} -c DEFAULT`", uuid)));
    } else if (mode == cuda::kComputeExclusiveProcess || mode == cuda::kComputeExclusiveThread) {
      findings.push_back(Problem(
          "compute_exclusive",
          fmt::format("{} is in an exclusive compute mode: one program at a time can use it.",
                      name),
          fmt::format("as root: `nvidia-smi -i {} -c DEFAULT`", uuid)));
    }
    if (card.modes.mig == true) {
      findings.push_back(Warning("mig",
                                 fmt::format("{} is divided by MIG: Tandem has not been tried with "
                                             "MIG.",
                                             name),
                                 fmt::format("as root: `nvidia-smi -i {} -mig 0`", uuid)));
    }
  }
  if (!findings.empty()) return findings;
  return {Fine("card_modes_fine", "Compute modes are the default, and MIG is off.")};
}

}  // namespace tandem::cli
