#include <gtest/gtest.h>

#include "src/cli/doctor/machine_test.h"

namespace tandem::cli {
namespace {

using CardCheckTest = DoctorTest;

TEST_F(CardCheckTest, Cards) {
  ExpectFinding(One(CheckCards), Severity::kOk, "cards_fine", {"1 GPU with 7 GiB to share."});
  nlohmann::json& gpu = machine_.daemon.status["gpus"][0];
  gpu["budget_bytes"] = 0u;
  ExpectFinding(One(CheckCards), Severity::kProblem, "nothing_to_share",
                {"all 8 GiB of gpu0", "outside Tandem"});
  gpu["software"] = true;
  ExpectFinding(One(CheckCards), Severity::kProblem, "nothing_to_share", {"tandem gpu soft"});
  machine_.daemon = {};
  ExpectFinding(One(CheckCards), Severity::kOk, "cards_unknown");
}

TEST_F(CardCheckTest, OtherPrograms) {
  UseCard();
  ExpectFinding(One(CheckOtherPrograms), Severity::kOk, "no_other_programs");
  machine_.cards->front().processes = {{500, GiB(1)}, {600, MiB(512)}, {700, MiB(512)}};
  ExpectFinding(One(CheckOtherPrograms), Severity::kNote, "other_programs",
                {"2 programs outside Tandem hold 1 GiB of gpu0.", "ps -p 600,700"});
  machine_.cards->front().uuid = "GPU-2";
  machine_.cards->front().processes.erase(700);
  ExpectFinding(One(CheckOtherPrograms), Severity::kNote, "other_programs",
                {"1 program outside Tandem holds 512 MiB of card GPU-2."});
  machine_.cards.reset();
  ExpectFinding(One(CheckOtherPrograms), Severity::kOk, "other_programs_unknown", {"NVML"});
  machine_.daemon.status["gpus"][0]["foreign_bytes"] = GiB(2).count;
  ExpectFinding(One(CheckOtherPrograms), Severity::kNote, "other_memory", {"2 GiB of gpu0"});
}

TEST_F(CardCheckTest, Mps) {
  UseCard();
  ExpectFinding(One(CheckMps), Severity::kOk, "no_mps");
  Write("/tmp/nvidia-mps/control", "");
  ExpectFinding(One(CheckMps), Severity::kWarning, "mps",
                {"/tmp/nvidia-mps", "nvidia-cuda-mps-control"});
  Set("CUDA_MPS_PIPE_DIRECTORY", "/run/mps");
  ExpectFinding(One(CheckMps), Severity::kOk, "no_mps");
  Write("/run/mps/control", "");
  ExpectFinding(One(CheckMps), Severity::kWarning, "mps", {"/run/mps"});
  machine_.gpu = Gpu::kSoft;
  ExpectFinding(One(CheckMps), Severity::kOk, "no_mps");
}

TEST_F(CardCheckTest, CardModes) {
  UseCard();
  cuda::CardModes& modes = machine_.cards->front().modes;
  modes = {false, 0};
  ExpectFinding(One(CheckCardModes), Severity::kOk, "card_modes_fine");
  modes = {true, 0};
  ExpectFinding(One(CheckCardModes), Severity::kWarning, "mig", {"gpu0", "-i GPU-1 -mig 0"});
  modes = {std::nullopt, cuda::kComputeProhibited};
  ExpectFinding(One(CheckCardModes), Severity::kProblem, "compute_prohibited", {"-c DEFAULT"});
  for (const int mode : {cuda::kComputeExclusiveThread, cuda::kComputeExclusiveProcess}) {
    modes = {std::nullopt, mode};
    ExpectFinding(One(CheckCardModes), Severity::kProblem, "compute_exclusive", {"-c DEFAULT"});
  }
  machine_.cards.reset();
  ExpectFinding(One(CheckCardModes), Severity::kOk, "card_modes_unknown", {"NVML"});
}

}  // namespace
}  // namespace tandem::cli
