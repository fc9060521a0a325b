#include "network.h"

#include <algorithm>

namespace train {
namespace {

using tandem::ErrorCode;
using tandem::MiB;

constexpr unsigned kBatch = 256;
constexpr unsigned kBatchesPerStep = 4;
constexpr std::array<unsigned, 4> kWidths = {2, 32, 32, 1};
constexpr float kRate = 0.05F;
constexpr unsigned kStirThreads = 16 * 1024;  // each takes many words
constexpr Bytes kDataBlock = MiB(32);
constexpr Bytes kMinData = tandem::KiB(64);

Bytes Floats(uint64_t count) {
  return Bytes(count * sizeof(float));
}

// FNV-1a over 64-bit words.
uint64_t Hash(uint64_t hash, const std::vector<uint64_t>& words) {
  for (const uint64_t word : words) hash = (hash ^ word) * 0x100000001b3U;
  return hash;
}

}  // namespace

Result<std::unique_ptr<Network>> Network::Create(Device* device, const Options& options) {
  std::unique_ptr<Network> network(new Network(device, options));
  TRY(network->Allocate());
  TRY(network->Initialize());
  return network;
}

Result<Network::Buffer> Network::Take(Bytes size) {
  // Whole 64-bit words, for the checksum.
  const Bytes rounded((size.count + 7) / 8 * 8);
  ASSIGN_OR_RETURN(const CUdeviceptr pointer, device_->Allocate(rounded));
  const Buffer buffer{pointer, rounded};
  buffers_.push_back(buffer);
  taken_ += rounded;
  return buffer;
}

Status Network::Allocate() {
  ASSIGN_OR_RETURN(points_, Take(Floats(uint64_t{kBatch} * kWidths[0])));
  ASSIGN_OR_RETURN(targets_, Take(Floats(kBatch)));
  ASSIGN_OR_RETURN(loss_, Take(Floats(1)));
  for (size_t i = 0; i < layers_.size(); ++i) {
    Layer& layer = layers_[i];
    layer.inputs = kWidths[i];
    layer.outputs = kWidths[i + 1];
    const Bytes weights = Floats((uint64_t{layer.inputs} + 1) * layer.outputs);
    ASSIGN_OR_RETURN(layer.weights, Take(weights));
    ASSIGN_OR_RETURN(layer.momentum, Take(weights));
    ASSIGN_OR_RETURN(layer.values, Take(Floats(uint64_t{kBatch} * layer.outputs)));
    ASSIGN_OR_RETURN(layer.gradient, Take(Floats(uint64_t{kBatch} * layer.outputs)));
  }
  if (options_.memory < taken_ + kMinData) {
    return Error{ErrorCode::kInvalid, "--memory " + tandem::FormatBytes(options_.memory) +
                                          " is too little; the network itself takes " +
                                          tandem::FormatBytes(taken_ + kMinData)};
  }
  while (taken_ < options_.memory) {
    const Bytes left = options_.memory - taken_;
    // The last block takes a short rest along: each must hold the batches drawn from it.
    const Bytes size = left < kDataBlock + kMinData ? left : kDataBlock;
    ASSIGN_OR_RETURN(const Buffer block, Take(size));
    data_.push_back(block);
  }
  return {};
}

Status Network::Initialize() {
  ASSIGN_OR_RETURN(kernels_.fill, device_->FindKernel("fill"));
  ASSIGN_OR_RETURN(kernels_.stir, device_->FindKernel("stir"));
  ASSIGN_OR_RETURN(kernels_.draw, device_->FindKernel("draw"));
  ASSIGN_OR_RETURN(kernels_.forward, device_->FindKernel("forward"));
  ASSIGN_OR_RETURN(kernels_.loss, device_->FindKernel("loss"));
  ASSIGN_OR_RETURN(kernels_.backward, device_->FindKernel("backward"));
  ASSIGN_OR_RETURN(kernels_.update, device_->FindKernel("update"));
  for (const Buffer& buffer : buffers_) TRY(device_->Clear(buffer.pointer, buffer.size));
  unsigned seed = 1;
  for (const Buffer& block : data_) {
    const auto words = static_cast<unsigned>(block.size.count / sizeof(unsigned));
    TRY(device_->Launch(kernels_.fill, kStirThreads, {&block.pointer, &words, &seed}));
    ++seed;
  }
  uint32_t random = 12345;
  for (const Layer& layer : layers_) {
    std::vector<float> weights(layer.weights.size.count / sizeof(float));
    // Uniform, and the wider the layer the smaller; the biases, in the last row, stay 0.
    const float scale = 2.0F / static_cast<float>(layer.inputs + 2);
    for (size_t i = 0; i < size_t{layer.inputs} * layer.outputs; ++i) {
      random = random * 1664525U + 1013904223U;
      weights[i] = (static_cast<float>(random >> 8) * 0x1p-23F - 1.0F) * scale;
    }
    TRY(device_->CopyIn(layer.weights.pointer, weights.data(), layer.weights.size));
  }
  return {};
}

Status Network::Stir() {
  for (const Buffer& block : data_) {
    const auto quads = static_cast<unsigned>(block.size.count / 16);
    TRY(device_->Launch(kernels_.stir, kStirThreads, {&block.pointer, &quads}));
  }
  return {};
}

Status Network::TrainOn(const Buffer& data, unsigned batch_index) {
  const CUdeviceptr words = data.pointer + CUdeviceptr{batch_index} * kBatch * 2 * sizeof(unsigned);
  TRY(device_->Launch(kernels_.draw, kBatch,
                      {&words, &points_.pointer, &targets_.pointer, &kBatch}));
  for (size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    const CUdeviceptr in = i == 0 ? points_.pointer : layers_[i - 1].values.pointer;
    const unsigned rectify = i + 1 < layers_.size() ? 1 : 0;
    TRY(device_->Launch(kernels_.forward, kBatch * layer.outputs,
                        {&in, &layer.weights.pointer, &layer.values.pointer, &kBatch, &layer.inputs,
                         &layer.outputs, &rectify}));
  }
  const Layer& last = layers_.back();
  TRY(device_->Launch(
      kernels_.loss, Device::kBlock,
      {&last.values.pointer, &targets_.pointer, &last.gradient.pointer, &loss_.pointer, &kBatch}));
  for (size_t i = layers_.size(); i-- > 0;) {
    const Layer& layer = layers_[i];
    const CUdeviceptr in = i == 0 ? points_.pointer : layers_[i - 1].values.pointer;
    if (i > 0) {
      TRY(device_->Launch(
          kernels_.backward, kBatch * layer.inputs,
          {&layer.gradient.pointer, &layer.weights.pointer, &in, &layers_[i - 1].gradient.pointer,
           &kBatch, &layer.inputs, &layer.outputs}));
    }
    TRY(device_->Launch(kernels_.update, (layer.inputs + 1) * layer.outputs,
                        {&in, &layer.gradient.pointer, &layer.weights.pointer,
                         &layer.momentum.pointer, &kBatch, &layer.inputs, &layer.outputs, &kRate}));
  }
  return {};
}

Result<float> Network::Step() {
  const Buffer& data = data_[steps_++ % data_.size()];
  for (unsigned pass = 0; pass < options_.passes; ++pass) TRY(Stir());
  for (unsigned batch = 0; batch < kBatchesPerStep; ++batch) TRY(TrainOn(data, batch));
  float loss = 0;
  TRY(device_->CopyOut(&loss, loss_.pointer, Bytes(sizeof loss)));
  return loss;
}

Result<uint64_t> Network::Checksum() {
  uint64_t hash = 0xcbf29ce484222325U;
  std::vector<uint64_t> words;
  for (const Buffer& buffer : buffers_) {
    for (Bytes done; done < buffer.size; done += Bytes(words.size() * sizeof(uint64_t))) {
      const Bytes part = std::min(buffer.size - done, MiB(4));
      words.resize(part.count / sizeof(uint64_t));
      TRY(device_->CopyOut(words.data(), buffer.pointer + done.count, part));
      hash = Hash(hash, words);
    }
  }
  return hash;
}

}  // namespace train
