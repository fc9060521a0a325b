// CleanCheck: looks at chunks that are to leave the card, whether they were modified since they
// came back: whether their fingerprint (fingerprint.h) is still that of the copy that was kept on
// the host. The card computes that when the chunk is about to leave and nothing runs. So the check
// relies on no other record of what was written to.
//
// A kernel of ours does it, loaded into the context that chunks are moved in; a batch is one
// launch, and two may be under way. Whatever fails ends it for that context: then all counts as
// modified.
//
// Threading: none of its own; the Swapper's lock is held around every call. REQUIRES for all: the
// mover's context is current.
// Invariants
// 1. A chunk is found unmodified only by a fingerprint that was taken since its gate was last open.
// 2. No chunk is unmapped while the card may be reading it: a batch that began is finished first.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "src/base/bytes.h"
#include "src/base/time.h"
#include "src/cuda/real_driver.h"
#include "src/shim/swap/device_memory.h"
#include "src/shim/swap/fingerprint.h"
#include "src/shim/swap/hash_worth.h"

namespace tandem::shim {

class CleanCheck {
 public:
  using Place = DeviceMemory::Place;
  static constexpr size_t kBatch = 8;
  static constexpr size_t kBatches = 2;  // under way

  explicit CleanCheck(const cuda::RealDriver* real) : real_(real) {}
  CleanCheck(const CleanCheck&) = delete;
  CleanCheck& operator=(const CleanCheck&) = delete;

  // The context goes, and what it has of ours. REQUIRES: no batch is under way.
  void Leave();

  // Begins a batch of those of these that are worth it. REQUIRES: count <= kBatch, and fewer than
  // kBatches are under way.
  void Start(const Place* places, size_t count);
  // Waits for the batch begun first. Unmodified chunks are not exposed any more; of the others Seen
  // has the fingerprint then.
  void Finish();
  std::optional<Fingerprint> Seen(const Chunk* chunk) const;
  // Forgets what it has seen. REQUIRES: no batch is under way.
  void EndEviction() { seen_.clear(); }
  size_t batches() const { return batches_.size(); }
  // What it took to copy chunks out.
  void OnCopied(Bytes bytes, Duration took) { worth_.OnCopied(bytes, took); }

 private:
  enum class State : uint8_t { kNew, kReady, kOff };

  // As the kernel takes and leaves it.
  struct Input {
    uint64_t address;
    uint64_t units;
    uint64_t blocks;
    uint64_t unused;
  };
  struct Buffer {
    Input inputs[kBatch];
    FingerprintSums sums[kBatch][kFingerprintBlocks];
  };
  struct Batch {
    std::vector<Place> places;
    bool launched;
    size_t buffer;
  };

  bool Prepare();
  bool Load();
  bool Launch(const Batch& batch);
  Duration Took(size_t buffer) const;
  void Judge(const Batch& batch);

  const cuda::RealDriver* const real_;
  HashWorth worth_;
  FingerprintKey key_{};
  bool keyed_ = false;
  State state_ = State::kNew;
  CUmodule module_ = nullptr;
  CUfunction kernel_ = nullptr;
  CUstream stream_ = nullptr;
  Buffer* buffers_ = nullptr;  // kBatches of them, which the card can reach
  CUdeviceptr buffers_there_ = 0;
  std::array<std::array<CUevent, 2>, kBatches> events_{};  // before and behind each
  std::deque<Batch> batches_;
  size_t next_buffer_ = 0;
  std::map<const Chunk*, Fingerprint> seen_;  // in this eviction
};

}  // namespace tandem::shim
