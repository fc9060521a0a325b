#include "tests/soak/blocks.h"

#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <utility>

#include "tests/soak/mapped.h"

namespace soak {
namespace {

constexpr uint64_t kMostWords = 1 << 20;  // of a block
constexpr int kFewestBits = 6, kFewestBitsOfLarge = 17, kMostBits = 20;
constexpr uint64_t kMostReplays = 4;
constexpr uint64_t kLongestGapUs = 20000;
constexpr const char* kKinds[] = {"plain", "pool's", "mapped", "managed", "array's"};
// Managed memory and arrays stay on the card: little of them.
constexpr int kFewestManagedBits = 6, kMostManagedBits = 15;
constexpr uint64_t kMostArrays = 4, kMostWidth = 300, kMostHeight = 200;
constexpr uint32_t kLoansSeed = 0x5eed1045;
constexpr uint64_t kPartnersOf100 = 40;  // operations, where there is one
constexpr uint64_t kOtherWords = 50000;  // in a context that does not last

// A graph and what is made of it; both end with this.
struct Captured {
  explicit Captured(const tandem::cuda::RealDriver& real) : driver(real) {}
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;
  ~Captured() {
    if (exec != nullptr) driver.cuGraphExecDestroy(exec);
    if (graph != nullptr) driver.cuGraphDestroy(graph);
  }

  const tandem::cuda::RealDriver& driver;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
};

}  // namespace

Blocks::Blocks(Device* device, uint32_t seed, Size size)
    : device_(device),
      size_(size),
      random_(seed),
      next_seed_(seed * 1000003),
      pageable_(kMostWords) {
  AllocatePinned();
}

Blocks::~Blocks() {
  device_->driver().cuMemFreeHost(pinned_);
}

void Blocks::ShareAs(const std::string& role) {
  partner_ = MakePartner(role, device_, next_seed_ ^ kLoansSeed, &counts_);
}

void Blocks::AllocatePinned() {
  device_->Do("cuMemHostAlloc", [this] {
    return device_->driver().cuMemHostAlloc(reinterpret_cast<void**>(&pinned_),
                                            kMostWords * sizeof(uint32_t), 0);
  });
}

void Blocks::Step() {
  ++counts_.operations;
  OrRecover(&Blocks::Operate);
}

void Blocks::Finish() {
  OrRecover(&Blocks::VerifyAndFreeAll);
}

void Blocks::OrRecover(void (Blocks::*work)()) {
  // The next context may break, too, before all is as it was: by a kernel of libtandem.so's.
  for (bool broken = false;; broken = true) {
    try {
      return broken ? Recover() : (this->*work)();
    } catch (const ContextBroken&) {
    }
  }
}

// A mapped block is still there, with unknown content. A pool's memory goes with its context here,
// and another thread may have got its address by now.
void Blocks::Recover() {
  device_->StartAgain();
  if (partner_ != nullptr) partner_->ContextEnded();
  arrays_.clear();
  held_ = 0;
  while (!blocks_.empty()) {
    const Block block = blocks_.back();
    blocks_.pop_back();
    if (block.kind == Block::Kind::kMapped) Return(block);
  }
  AllocatePinned();
}

void Blocks::Operate() {
  if (partner_ != nullptr && Random(100) < kPartnersOf100) return partner_->Step();
  const uint64_t choice = Random(100);
  if (blocks_.size() < 2 || held_ < size_.least || choice < 25) return Allocate();
  if (choice < 30) return Free(Random(blocks_.size()));
  if (choice < 40) return Write(Any());
  if (choice < 60) return Add();
  if (choice < 72) return Copy();
  if (choice < 80) return Replay();
  if (choice < 85) return ChangeStream();
  if (choice < 95) return Verify(Any());
  if (choice < 96) return UseAnotherContext();
  if (choice < 97) return VerifyAll();
  if (choice < 99) return UseAnArray();
  usleep(static_cast<useconds_t>(Random(kLongestGapUs)));
}

void Blocks::VerifyAll() {
  for (const Block& block : blocks_) Verify(block);
  for (const Array& array : arrays_) VerifyArray(array);
}

void Blocks::VerifyAndFreeAll() {
  VerifyAll();
  if (partner_ != nullptr) partner_->Finish();
  while (!blocks_.empty()) Free(blocks_.size() - 1);
  while (!arrays_.empty()) {
    Check("cuArrayDestroy", device_->driver().cuArrayDestroy(arrays_.back().handle));
    arrays_.pop_back();
  }
}

CUresult Blocks::Make(Block* block) {
  const auto& driver = device_->driver();
  switch (block->kind) {
    case Block::Kind::kPool:
      return driver.cuMemAllocAsync(&block->address, block->bytes(),
                                    device_->stream(block->stream));
    case Block::Kind::kMapped:
      return AllocateMapped(driver, device_->ordinal(), block->bytes(), &block->address);
    case Block::Kind::kManaged:
      return driver.cuMemAllocManaged(&block->address, block->bytes(), CU_MEM_ATTACH_GLOBAL);
    case Block::Kind::kPlain:
    case Block::Kind::kArray:
      break;
  }
  return driver.cuMemAlloc_v2(&block->address, block->bytes());
}

void Blocks::Allocate() {
  Block block;
  block.kind = static_cast<Block::Kind>(Random(4));
  const bool managed = block.kind == Block::Kind::kManaged;
  const int fewest_plain = size_.least > 0 ? kFewestBitsOfLarge : kFewestBits;
  const int fewest = managed ? kFewestManagedBits : fewest_plain;
  const int most = managed ? kMostManagedBits : kMostBits;
  const uint64_t low = uint64_t{1} << (fewest + Random(most - fewest));
  block.words = low + Random(low);
  block.stream = static_cast<int>(Random(Device::kStreams));
  while (!blocks_.empty() && held_ + block.bytes() > size_.most) Free(Random(blocks_.size()));
  const CUresult result = Make(&block);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    ++counts_.out_of_memory;
    if (blocks_.empty()) {
      usleep(1000);
    } else {
      Free(Random(blocks_.size()));
    }
    return;
  }
  Check("an allocation", result);
  ++counts_.allocations;
  held_ += block.bytes();
  blocks_.push_back(block);
  Write(blocks_.back());
}

void Blocks::Free(size_t index) {
  Return(blocks_[index]);
  held_ -= blocks_[index].bytes();
  std::swap(blocks_[index], blocks_.back());
  blocks_.pop_back();
}

void Blocks::Return(const Block& block) {
  const auto& driver = device_->driver();
  switch (block.kind) {
    case Block::Kind::kPool:
      return Check("cuMemFreeAsync",
                   driver.cuMemFreeAsync(block.address, device_->stream(block.stream)));
    case Block::Kind::kMapped:
      device_->Wait(block.stream);
      return Check("cuMemUnmap", FreeMapped(driver, block.address, block.bytes()));
    case Block::Kind::kPlain:
    case Block::Kind::kManaged:
    case Block::Kind::kArray:
      return Check("cuMemFree", driver.cuMemFree_v2(block.address));
  }
}

// Gives a block new content, in one of the ways that there are.
void Blocks::Write(Block& block) {
  block.seed = next_seed_++;
  block.added = 0;
  const uint64_t way = Random(3);
  block.constant = way == 0;
  if (way == 0) {
    device_->Do("cuMemsetD32Async", [&] {
      return device_->driver().cuMemsetD32Async(block.address, block.seed, block.words,
                                                device_->stream(block.stream));
    });
  } else if (way == 1) {
    device_->Pattern(block.address, block.seed, block.words, block.stream);
    ++counts_.launches;
  } else {
    Upload(block);
  }
}

void Blocks::Upload(const Block& block) {
  uint32_t* const from = Random(2) == 0 ? pinned_ : pageable_.data();
  for (uint64_t i = 0; i < block.words; ++i) from[i] = block.At(i);
  device_->Do("cuMemcpyHtoDAsync", [&] {
    return device_->driver().cuMemcpyHtoDAsync_v2(block.address, from, block.bytes(),
                                                  device_->stream(block.stream));
  });
  device_->Wait(block.stream);
  counts_.moved_bytes += block.bytes();
}

void Blocks::Add() {
  Block& block = Any();
  const auto value = static_cast<uint32_t>(random_());
  device_->Add(block.address, value, block.words, block.stream);
  block.added += value;
  ++counts_.launches;
}

void Blocks::Copy() {
  const Block* from = &Any();
  Block* to = &Any();
  if (from == to) return;
  if (from->words < to->words) return;
  device_->Order(from->stream, to->stream);
  device_->Do("cuMemcpyDtoDAsync", [&] {
    return device_->driver().cuMemcpyDtoDAsync_v2(to->address, from->address, to->bytes(),
                                                  device_->stream(to->stream));
  });
  device_->Order(to->stream, from->stream);
  to->seed = from->seed;
  to->constant = from->constant;
  to->added = from->added;
  ++counts_.copies;
  counts_.moved_bytes += to->bytes();
}

// Captures work on two blocks and has it done several times.
void Blocks::Replay() {
  Block& grows = Any();
  Block& filled = Any();
  if (&grows == &filled) return;
  const auto& driver = device_->driver();
  const CUstream stream = device_->stream(grows.stream);
  const auto value = static_cast<uint32_t>(random_());
  const uint32_t seed = next_seed_++;
  Captured captured(driver);
  CUgraph& graph = captured.graph;
  device_->Order(filled.stream, grows.stream);
  device_->Do("capture", [&] {
    CUresult begun = driver.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    if (begun != CUDA_SUCCESS) return begun;
    CUresult result = device_->LaunchAdd(grows.address, value, grows.words, grows.stream);
    if (result == CUDA_SUCCESS) {
      result = driver.cuMemsetD32Async(filled.address, seed, filled.words, stream);
    }
    const CUresult ended = driver.cuStreamEndCapture(stream, &graph);
    if (result == CUDA_SUCCESS || graph == nullptr) return ended;
    driver.cuGraphDestroy(graph);
    graph = nullptr;
    return result;
  });
  device_->Do("cuGraphInstantiate",
              [&] { return driver.cuGraphInstantiateWithFlags(&captured.exec, graph, 0); });
  const uint64_t replays = 1 + Random(kMostReplays);
  for (uint64_t i = 0; i < replays; ++i) {
    device_->Do("cuGraphLaunch", [&] { return driver.cuGraphLaunch(captured.exec, stream); });
    grows.added += value;
  }
  device_->Order(grows.stream, filled.stream);
  filled.seed = seed;
  filled.constant = true;
  filled.added = 0;
  device_->Wait(grows.stream);
  Check("cuGraphExecDestroy", driver.cuGraphExecDestroy(std::exchange(captured.exec, nullptr)));
  Check("cuGraphDestroy", driver.cuGraphDestroy(std::exchange(graph, nullptr)));
  counts_.graphs += replays;
}

void Blocks::ChangeStream() {
  Block& block = Any();
  const auto stream = static_cast<int>(Random(Device::kStreams));
  device_->Order(block.stream, stream);
  block.stream = stream;
}

void Blocks::UseAnotherContext() {
  const bool made = device_->InAnotherContext([this] {
    const auto& driver = device_->driver();
    Block block;
    block.words = kOtherWords;
    block.seed = next_seed_++;
    if (driver.cuMemAlloc_v2(&block.address, block.bytes()) != CUDA_SUCCESS) return;
    device_->Pattern(block.address, block.seed, block.words, 0);
    device_->Do("cuMemcpyDtoH", [&] {
      return driver.cuMemcpyDtoH_v2(pageable_.data(), block.address, block.bytes());
    });
    Compare(block, pageable_.data());
    if (Random(2) == 0) Check("cuMemFree", driver.cuMemFree_v2(block.address));
  });
  if (made) {
    ++counts_.contexts;
  } else {
    ++counts_.out_of_memory;
  }
}

void Blocks::UseAnArray() {
  ++counts_.arrays;
  if (arrays_.empty() || (arrays_.size() < kMostArrays && Random(3) == 0)) return MakeArray();
  const size_t index = Random(arrays_.size());
  const uint64_t choice = Random(5);
  if (choice < 2) return WriteArray(arrays_[index]);
  if (choice < 4) return VerifyArray(arrays_[index]);
  Check("cuArrayDestroy", device_->driver().cuArrayDestroy(arrays_[index].handle));
  arrays_.erase(arrays_.begin() + static_cast<ptrdiff_t>(index));
}

void Blocks::MakeArray() {
  Array array;
  array.width = 1 + Random(kMostWidth);
  array.height = 1 + Random(kMostHeight);
  array.content.kind = Block::Kind::kArray;
  array.content.words = array.width * array.height;
  const CUDA_ARRAY_DESCRIPTOR descriptor = {array.width, array.height, CU_AD_FORMAT_UNSIGNED_INT32,
                                            1};
  const CUresult result = device_->driver().cuArrayCreate_v2(&array.handle, &descriptor);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    ++counts_.out_of_memory;
    return;
  }
  Check("cuArrayCreate", result);
  arrays_.push_back(array);
  WriteArray(arrays_.back());
}

void Blocks::WriteArray(Array& array) {
  Block& content = array.content;
  content.seed = next_seed_++;
  uint32_t* const from = Random(2) == 0 ? pinned_ : pageable_.data();
  for (uint64_t i = 0; i < content.words; ++i) from[i] = content.At(i);
  CUDA_MEMCPY2D copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = from;
  copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.dstArray = array.handle;
  copy.WidthInBytes = copy.srcPitch = array.width * sizeof(uint32_t);
  copy.Height = array.height;
  device_->Do("cuMemcpy2D", [&] { return device_->driver().cuMemcpy2D_v2(&copy); });
  counts_.moved_bytes += content.bytes();
}

void Blocks::VerifyArray(const Array& array) {
  uint32_t* const to = Random(2) == 0 ? pinned_ : pageable_.data();
  std::fill_n(to, array.content.words, 0);
  CUDA_MEMCPY2D copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.srcArray = array.handle;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = to;
  copy.WidthInBytes = copy.dstPitch = array.width * sizeof(uint32_t);
  copy.Height = array.height;
  device_->Do("cuMemcpy2D", [&] { return device_->driver().cuMemcpy2D_v2(&copy); });
  counts_.moved_bytes += array.content.bytes();
  Compare(array.content, to);
}

void Blocks::Verify(const Block& block) {
  if (block.kind == Block::Kind::kManaged && Random(2) == 0) {
    // The host may look at it only while nothing of the device's runs.
    device_->Do("cuCtxSynchronize", [this] { return device_->driver().cuCtxSynchronize(); });
    return Compare(block, reinterpret_cast<const uint32_t*>(block.address));
  }
  uint32_t* const to = Random(2) == 0 ? pinned_ : pageable_.data();
  std::fill_n(to, block.words, 0);
  device_->Do("cuMemcpyDtoHAsync", [&] {
    return device_->driver().cuMemcpyDtoHAsync_v2(to, block.address, block.bytes(),
                                                  device_->stream(block.stream));
  });
  device_->Wait(block.stream);
  counts_.moved_bytes += block.bytes();
  Compare(block, to);
}

void Blocks::Compare(const Block& block, const uint32_t* found) {
  uint64_t wrong = 0, first = 0, last = 0;
  for (uint64_t i = 0; i < block.words; ++i) {
    if (found[i] == block.At(i)) continue;
    if (wrong++ == 0) first = i;
    last = i;
  }
  counts_.verified_bytes += block.bytes();
  counts_.wrong_bytes += wrong * sizeof(uint32_t);
  if (wrong == 0) return;
  std::fprintf(stderr,
               "soak_worker: after %" PRIu64 " operations %" PRIu64 " of %" PRIu64
               " words are wrong, %" PRIu64 " to %" PRIu64 ", in the %s block at %#" PRIx64
               " of stream %d: %08x instead of %08x (%s %08x, and %08x more)\n",
               counts_.operations, wrong, block.words, first, last,
               kKinds[static_cast<size_t>(block.kind)], static_cast<uint64_t>(block.address),
               block.stream, found[first], block.At(first), block.constant ? "all" : "pattern",
               block.seed, block.added);
}

}  // namespace soak
