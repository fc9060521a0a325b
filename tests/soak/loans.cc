#include "tests/soak/loans.h"

#include <cinttypes>
#include <cstdio>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "tests/soak/peer.h"

namespace soak {
namespace {

constexpr int kFewestLentBits = 6, kMostLentBits = 19;
constexpr uint64_t kMostLentWords = uint64_t{1} << kMostLentBits;

struct Offer {
  CUipcMemHandle memory = {};
  CUipcEventHandle event = {};
  uint64_t words = 0;
  // What it has, by which the answer names it, and what it is to have.
  uint32_t seed = 0, next_seed = 0;
  // It has that already, and not only once the event is reached: whatever becomes of the lender.
  bool settled = false;
};

struct Answer {
  enum class How : uint32_t { kRefused, kWritten, kLost } how = How::kRefused;
  uint32_t seed = 0;  // the offer's
  // As the borrower found it; the lender knows whether its own context broke before.
  uint64_t wrong_bytes = 0;
};

// What both do with a block.
class Sharer : public Partner {
 protected:
  Sharer(std::string path, bool waits, Device* device, uint32_t seed, Counts* counts)
      : peer_(std::move(path), waits), device_(device), random_(seed), counts_(counts) {}

  const tandem::cuda::RealDriver& driver() const { return device_->driver(); }
  uint64_t Random(uint64_t below) { return random_() % below; }

  void RecordEvent(CUevent event, int stream) {
    device_->Do("cuEventRecord",
                [&] { return driver().cuEventRecord(event, device_->stream(stream)); });
  }
  void WaitForEvent(CUevent event, int stream) {
    device_->Do("cuStreamWaitEvent",
                [&] { return driver().cuStreamWaitEvent(device_->stream(stream), event, 0); });
  }
  // How many bytes are neither of the pattern of `seed` nor, unless they are the same, of `other`.
  uint64_t Wrong(CUdeviceptr address, uint64_t words, uint32_t seed, uint32_t other, int stream);
  void CountWrong(uint64_t bytes, const char* what);

  Peer peer_;
  Device* const device_;
  std::mt19937 random_;
  Counts* const counts_;

 private:
  std::vector<uint32_t> found_ = std::vector<uint32_t>(kMostLentWords);
};

uint64_t Sharer::Wrong(CUdeviceptr address, uint64_t words, uint32_t seed, uint32_t other,
                       int stream) {
  const uint64_t bytes = words * sizeof(uint32_t);
  device_->Do("cuMemcpyDtoHAsync", [&] {
    return driver().cuMemcpyDtoHAsync_v2(found_.data(), address, bytes, device_->stream(stream));
  });
  device_->Wait(stream);
  uint64_t wrong = 0;
  for (uint64_t i = 0; i < words; ++i) {
    if (found_[i] != PatternAt(seed, i) && found_[i] != PatternAt(other, i)) ++wrong;
  }
  counts_->moved_bytes += bytes;
  counts_->verified_bytes += bytes;
  return wrong * sizeof(uint32_t);
}

void Sharer::CountWrong(uint64_t bytes, const char* what) {
  counts_->wrong_bytes += bytes;
  if (bytes == 0) return;
  std::fprintf(stderr,
               "soak_worker: after %" PRIu64 " operations %" PRIu64 " bytes are wrong of %s\n",
               counts_->operations, bytes, what);
}

class Lender : public Sharer {
 public:
  Lender(std::string path, Device* device, uint32_t seed, Counts* counts)
      : Sharer(std::move(path), true, device, seed, counts), next_seed_(seed * 7919) {}

  void Step() override;
  void Finish() override;
  void ContextEnded() override { block_.reset(); }

 private:
  struct Block {
    CUdeviceptr address = 0;
    CUevent event = nullptr;
    int stream = 0;
    Offer offer;
    bool lent = false;
  };

  bool Make();
  void Lend();
  void TakeBack(const Answer& answer);
  Peer::Heard Hear(Answer* answer);
  void Free();

  uint32_t next_seed_;
  std::optional<Block> block_;
};

void Lender::Step() {
  if (!block_.has_value() || !block_->lent) {
    if (!peer_.Find()) return;
    if (block_.has_value() && Random(2) == 0) Free();  // else it is lent once more
    if (block_.has_value() || Make()) Lend();
    return;
  }
  Answer answer;
  if (Hear(&answer) != Peer::Heard::kNothing) return TakeBack(answer);
  const Offer& offer = block_->offer;
  CountWrong(Wrong(block_->address, offer.words, offer.seed, offer.next_seed, block_->stream),
             "a block while it is lent");
}

// False: there was no memory for it.
bool Lender::Make() {
  Block block;
  const uint64_t low = uint64_t{1} << (kFewestLentBits + Random(kMostLentBits - kFewestLentBits));
  block.offer.words = low + Random(low);
  block.stream = static_cast<int>(Random(Device::kStreams));
  const CUresult result =
      driver().cuMemAlloc_v2(&block.address, block.offer.words * sizeof(uint32_t));
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    ++counts_->out_of_memory;
    return false;
  }
  Check("cuMemAlloc", result);
  ++counts_->allocations;
  device_->Do("cuEventCreate", [&] {
    return driver().cuEventCreate(&block.event, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS);
  });
  Check("cuIpcGetEventHandle", driver().cuIpcGetEventHandle(&block.offer.event, block.event));
  block_ = block;
  return true;
}

// It is shared before it is filled or afterwards, and the borrower may have to wait for that.
void Lender::Lend() {
  Offer& offer = block_->offer;
  offer.seed = next_seed_++;
  offer.next_seed = next_seed_++;
  const bool first = Random(2) == 0;
  const auto fill = [&] {
    device_->Pattern(block_->address, offer.seed, offer.words, block_->stream);
  };
  if (first) fill();
  const CUresult result = driver().cuIpcGetMemHandle(&offer.memory, block_->address);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    ++counts_->refused;
    return Free();
  }
  Check("cuIpcGetMemHandle", result);
  if (!first) fill();
  ++counts_->launches;
  RecordEvent(block_->event, block_->stream);
  offer.settled = Random(2) == 0;
  if (offer.settled) device_->Wait(block_->stream);
  block_->lent = peer_.Send(offer);
  if (block_->lent) {
    ++counts_->lent;
  } else {
    Free();
    Answer none;
    peer_.Receive(&none);  // that it has gone, or what it was late to say
  }
}

void Lender::TakeBack(const Answer& answer) {
  block_->lent = false;
  const Offer& offer = block_->offer;
  const bool written = answer.how == Answer::How::kWritten;
  const bool lost = answer.how == Answer::How::kLost;
  if (lost) ++counts_->lost;
  if (written) WaitForEvent(block_->event, block_->stream);
  CountWrong(Wrong(block_->address, offer.words, written ? offer.next_seed : offer.seed,
                   written || lost ? offer.next_seed : offer.seed, block_->stream),
             written ? "a block that was given back" : "a block that was not written to");
  CountWrong(answer.wrong_bytes, "a block, as the borrower found it");
}

// What it had lent before its context broke is not its any more.
Peer::Heard Lender::Hear(Answer* answer) {
  Peer::Heard heard;
  do {
    heard = peer_.Receive(answer);
  } while (heard == Peer::Heard::kMessage && answer->seed != block_->offer.seed);
  if (heard == Peer::Heard::kGone) *answer = {Answer::How::kLost};
  return heard;
}

void Lender::Finish() {
  if (!block_.has_value()) return;
  Answer answer;
  if (block_->lent) {
    if (Hear(&answer) == Peer::Heard::kNothing) return;  // the borrower has it as long as it likes
    TakeBack(answer);
  }
  Free();
}

void Lender::Free() {
  const Block block = *std::exchange(block_, std::nullopt);
  Check("cuEventDestroy", driver().cuEventDestroy_v2(block.event));
  Check("cuMemFree", driver().cuMemFree_v2(block.address));
}

class Borrower : public Sharer {
 public:
  Borrower(std::string path, Device* device, uint32_t seed, Counts* counts)
      : Sharer(std::move(path), false, device, seed, counts) {}

  void Step() override;
  void Finish() override;
  void ContextEnded() override;

 private:
  struct Loan {
    Offer offer;
    CUdeviceptr address = 0;
    CUevent event = nullptr;
    int stream = 0;
    uint64_t wrong_bytes = 0;
    bool answered = false;
  };

  void Open();
  void Refuse();
  void Look();
  void GiveBack();
  void Close();
  void Say(Answer::How how);

  std::optional<Loan> loan_;
};

void Borrower::Step() {
  if (loan_.has_value()) return Random(2) == 0 ? GiveBack() : Look();
  if (!peer_.Find()) return;
  Loan loan;
  if (peer_.Receive(&loan.offer) != Peer::Heard::kMessage) return;
  loan_ = loan;
  Open();
}

void Borrower::Open() {
  Loan& loan = *loan_;
  const CUresult opened = driver().cuIpcOpenMemHandle_v2(&loan.address, loan.offer.memory,
                                                         CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  // No room, its lender has gone, or a daemon has only just begun and does not know of it.
  if (opened == CUDA_ERROR_OUT_OF_MEMORY || opened == CUDA_ERROR_MAP_FAILED) return Refuse();
  Check("cuIpcOpenMemHandle", opened);
  const CUresult event = driver().cuIpcOpenEventHandle(&loan.event, loan.offer.event);
  if (event == CUDA_ERROR_MAP_FAILED) {  // its lender has gone
    Check("cuIpcCloseMemHandle", driver().cuIpcCloseMemHandle(loan.address));
    return Refuse();
  }
  Check("cuIpcOpenEventHandle", event);
  ++counts_->borrowed;
  loan.stream = static_cast<int>(Random(Device::kStreams));
  WaitForEvent(loan.event, loan.stream);
  Look();
}

void Borrower::Refuse() {
  ++counts_->refused;
  Say(Answer::How::kRefused);
  loan_.reset();
}

// Whether it is right where it was to come by work of the lender's only the lender can tell.
void Borrower::Look() {
  const Offer& offer = loan_->offer;
  const uint64_t wrong = Wrong(loan_->address, offer.words, offer.seed, offer.seed, loan_->stream);
  if (offer.settled) {
    CountWrong(wrong, "a borrowed block");
  } else {
    loan_->wrong_bytes += wrong;
  }
}

// It is closed before or after the lender has it back.
void Borrower::GiveBack() {
  const Loan& loan = *loan_;
  device_->Pattern(loan.address, loan.offer.next_seed, loan.offer.words, loan.stream);
  ++counts_->launches;
  RecordEvent(loan.event, loan.stream);
  device_->Wait(loan.stream);  // a context that breaks has not written the block
  const bool first = Random(2) == 0;
  if (first) Say(Answer::How::kWritten);
  Close();
  if (!first) Say(Answer::How::kWritten);
  loan_.reset();
}

void Borrower::Close() {
  Check("cuEventDestroy", driver().cuEventDestroy_v2(loan_->event));
  Check("cuIpcCloseMemHandle", driver().cuIpcCloseMemHandle(loan_->address));
}

void Borrower::Say(Answer::How how) {
  peer_.Send(
      Answer{how, loan_->offer.seed, loan_->wrong_bytes});  // one that has gone does not matter
  loan_->answered = true;
}

void Borrower::Finish() {
  if (loan_.has_value()) GiveBack();
}

// What was open went with the context.
void Borrower::ContextEnded() {
  if (!loan_.has_value()) return;
  ++counts_->lost;
  if (!loan_->answered) Say(Answer::How::kLost);
  loan_.reset();
}

}  // namespace

std::unique_ptr<Partner> MakePartner(const std::string& role, Device* device, uint32_t seed,
                                     Counts* counts) {
  const std::string path = role.substr(role.find(':') + 1);
  if (role.starts_with("lend:")) return std::make_unique<Lender>(path, device, seed, counts);
  return std::make_unique<Borrower>(path, device, seed, counts);
}

}  // namespace soak
