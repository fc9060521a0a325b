#include "src/shim/swap/clean_check.h"

#include <algorithm>
#include <utility>

namespace tandem::shim {
namespace {

// A chunk that was modified so often in a row is not looked at for 1, 3, 7, … departures.
constexpr uint8_t kMostModified = 6;

uint8_t DeparturesToSkip(uint8_t modified) {
  return modified < 2 ? 0 : static_cast<uint8_t>((1u << (modified - 1)) - 1);
}

}  // namespace

void CleanCheck::Leave() {
  for (auto& pair : events_) {
    for (CUevent& event : pair) {
      if (event != nullptr) real_->cuEventDestroy_v2(std::exchange(event, nullptr));
    }
  }
  if (stream_ != nullptr) real_->cuStreamDestroy_v2(std::exchange(stream_, nullptr));
  if (buffers_ != nullptr) real_->cuMemFreeHost(std::exchange(buffers_, nullptr));
  if (module_ != nullptr) real_->cuModuleUnload(std::exchange(module_, nullptr));
  state_ = State::kNew;
}

bool CleanCheck::Load() {
  if (real_->cuModuleLoadData == nullptr || real_->cuModuleGetFunction == nullptr ||
      real_->cuModuleUnload == nullptr || real_->cuLaunchKernel == nullptr ||
      real_->cuMemHostAlloc == nullptr || real_->cuMemFreeHost == nullptr ||
      real_->cuMemHostGetDevicePointer_v2 == nullptr || real_->cuEventElapsedTime == nullptr) {
    return false;
  }
  keyed_ = keyed_ || MakeFingerprintKey(&key_);
  if (!keyed_) return false;
  if (real_->cuModuleLoadData(&module_, kFingerprintKernel) != CUDA_SUCCESS ||
      real_->cuModuleGetFunction(&kernel_, module_, "tandem_fingerprint") != CUDA_SUCCESS ||
      real_->cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) {
    return false;
  }
  void* buffers = nullptr;
  if (real_->cuMemHostAlloc(&buffers, kBatches * sizeof(Buffer), CU_MEMHOSTALLOC_DEVICEMAP) !=
      CUDA_SUCCESS) {
    return false;
  }
  buffers_ = static_cast<Buffer*>(buffers);
  if (real_->cuMemHostGetDevicePointer_v2(&buffers_there_, buffers, 0) != CUDA_SUCCESS) {
    return false;
  }
  for (auto& pair : events_) {
    for (CUevent& event : pair) {
      if (real_->cuEventCreate(&event, CU_EVENT_DEFAULT) != CUDA_SUCCESS) return false;
    }
  }
  // The first launch may have to load more: it is not to be measured.
  buffers_[0].inputs[0] = {0, 0, 1, 0};
  return Launch({{Place()}, true, 0}) && real_->cuStreamSynchronize(stream_) == CUDA_SUCCESS;
}

bool CleanCheck::Prepare() {
  if (state_ != State::kNew) return state_ == State::kReady;
  const bool loaded = Load();
  if (!loaded) Leave();
  state_ = loaded ? State::kReady : State::kOff;
  return loaded;
}

bool CleanCheck::Launch(const Batch& batch) {
  uint64_t blocks = 1;
  const Buffer& buffer = buffers_[batch.buffer];
  for (size_t i = 0; i < batch.places.size(); ++i) {
    blocks = std::max(blocks, buffer.inputs[i].blocks);
  }
  CUdeviceptr there = buffers_there_ + batch.buffer * sizeof(Buffer);
  void* parameters[] = {&there, &key_};
  const auto& [before, behind] = events_[batch.buffer];
  return real_->cuEventRecord(before, stream_) == CUDA_SUCCESS &&
         real_->cuLaunchKernel(kernel_, static_cast<unsigned int>(blocks),
                               static_cast<unsigned int>(batch.places.size()), 1,
                               static_cast<unsigned int>(kFingerprintThreads), 1, 1, 0, stream_,
                               parameters, nullptr) == CUDA_SUCCESS &&
         real_->cuEventRecord(behind, stream_) == CUDA_SUCCESS;
}

void CleanCheck::Start(const Place* places, size_t count) {
  Batch batch{{}, false, next_buffer_};
  next_buffer_ = (next_buffer_ + 1) % kBatches;
  const size_t most = worth_.Most(kBatch);
  for (size_t i = 0; i < count; ++i) {
    Chunk& chunk = *places[i].chunk;
    if (!chunk.exposed || batch.places.size() == most || places[i].extent->lost) continue;
    if (chunk.unexamined != 0) {
      --chunk.unexamined;
      continue;
    }
    batch.places.push_back(places[i]);
  }
  if (!batch.places.empty() && Prepare()) {
    for (size_t i = 0; i < batch.places.size(); ++i) {
      const Chunk& chunk = *batch.places[i].chunk;
      buffers_[batch.buffer].inputs[i] = {chunk.address, chunk.bytes / kFingerprintUnit,
                                          FingerprintBlocks(chunk.bytes), 0};
    }
    batch.launched = Launch(batch);
    if (!batch.launched) {
      real_->cuStreamSynchronize(stream_);  // it may have been launched nevertheless
      state_ = State::kOff;
    }
  }
  batches_.push_back(std::move(batch));
}

Duration CleanCheck::Took(size_t buffer) const {
  float milliseconds = 0;
  real_->cuEventElapsedTime(&milliseconds, events_[buffer][0], events_[buffer][1]);
  return Duration(static_cast<int64_t>(static_cast<double>(milliseconds) * 1e6));
}

void CleanCheck::Finish() {
  const Batch batch = std::move(batches_.front());
  batches_.pop_front();
  if (!batch.launched) return;
  if (real_->cuEventSynchronize(events_[batch.buffer][1]) != CUDA_SUCCESS) {
    state_ = State::kOff;
    return;
  }
  Judge(batch);
}

std::optional<Fingerprint> CleanCheck::Seen(const Chunk* chunk) const {
  const auto found = seen_.find(chunk);
  return found == seen_.end() ? std::nullopt : std::optional(found->second);
}

void CleanCheck::Judge(const Batch& batch) {
  Bytes hashed, compared, clean;
  for (size_t i = 0; i < batch.places.size(); ++i) {
    Chunk& chunk = *batch.places[i].chunk;
    const FingerprintSums* const sums = buffers_[batch.buffer].sums[i];
    const Fingerprint print = Combine(key_, {sums, FingerprintBlocks(chunk.bytes)});
    hashed += Bytes(chunk.bytes);
    seen_[&chunk] = print;
    if (chunk.host == nullptr || !chunk.print.has_value()) continue;
    compared += Bytes(chunk.bytes);
    if (*chunk.print == print) {
      chunk.exposed = false;
      chunk.modified = 0;
      clean += Bytes(chunk.bytes);
    } else {
      chunk.modified = std::min<uint8_t>(chunk.modified + 1, kMostModified);
      chunk.unexamined = DeparturesToSkip(chunk.modified);
    }
  }
  worth_.OnHashed(hashed, Took(batch.buffer), compared, clean);
}

}  // namespace tandem::shim
