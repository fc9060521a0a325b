// Blocks: memory of a soak_worker on its GPU, each block with content of its own, known word by
// word from a few numbers, so that any other byte is noticed: one that was lost, or is another
// block's, or the same block's from before.
//
// A context that breaks takes all of them along, as it does from any program.
//
// Threading: one thread.
// Invariants
// 1. All work on a block is in the block's stream, or ordered before the work there.
// 2. No two blocks, and no two versions of one, have the same seed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/soak/counts.h"
#include "tests/soak/device.h"
#include "tests/soak/loans.h"

namespace soak {

class Blocks {
 public:
  // How many bytes to hold at once. With any at least, blocks are large.
  struct Size {
    uint64_t least = 0, most = 0;
  };

  Blocks(Device* device, uint32_t seed, Size size);
  Blocks(const Blocks&) = delete;
  Blocks& operator=(const Blocks&) = delete;
  ~Blocks();

  // From the first step on, with another worker (loans.h).
  void ShareAs(const std::string& role);

  // One random operation.
  void Step();
  // Looks at every byte of every block, and frees them all.
  void Finish();

  const Counts& counts() const { return counts_; }

 private:
  struct Block {
    CUdeviceptr address = 0;
    uint64_t words = 0;
    enum class Kind : uint8_t { kPlain, kPool, kMapped, kManaged, kArray } kind = Kind::kPlain;
    int stream = 0;
    // Its content: every word is the seed, or the seed's pattern there, plus `added`.
    uint32_t seed = 0;
    bool constant = false;
    uint32_t added = 0;

    uint64_t bytes() const { return words * sizeof(uint32_t); }
    uint32_t At(uint64_t index) const { return (constant ? seed : PatternAt(seed, index)) + added; }
  };

  // The content of one is as a block's without an address.
  struct Array {
    CUarray handle = nullptr;
    uint64_t width = 0, height = 0;
    Block content;
  };

  uint64_t Random(uint64_t below) { return random_() % below; }
  Block& Any() { return blocks_[Random(blocks_.size())]; }

  void OrRecover(void (Blocks::*work)());
  void Recover();
  void Operate();
  void VerifyAll();
  void VerifyAndFreeAll();
  void AllocatePinned();
  CUresult Make(Block* block);
  void Allocate();
  void Free(size_t index);
  void Return(const Block& block);
  void Write(Block& block);
  void Upload(const Block& block);
  void Add();
  void Copy();
  void Replay();
  void ChangeStream();
  void UseAnotherContext();
  void UseAnArray();
  void MakeArray();
  void WriteArray(Array& array);
  void VerifyArray(const Array& array);
  void Verify(const Block& block);
  void Compare(const Block& block, const uint32_t* found);

  Device* const device_;
  const Size size_;
  std::mt19937 random_;
  uint32_t next_seed_;
  uint64_t held_ = 0;
  std::vector<Block> blocks_;
  std::vector<Array> arrays_;
  std::vector<uint32_t> pageable_;
  uint32_t* pinned_ = nullptr;
  Counts counts_;
  std::unique_ptr<Partner> partner_;  // null: it shares nothing
};

}  // namespace soak
