// Network: a small multi-layer perceptron that learns on the GPU to tell points inside a disc from
// those outside, by gradient descent with momentum.
//
// Threading: one thread.
// Invariants
// 1. Everything is deterministic: the same options give the same losses and the same checksum, bit
//    for bit, on every device.
// 2. The device memory held is exactly the amount asked for, and every step reads and rewrites
//    nearly all of it: the data are random words, all of which are stirred once a pass, and the
//    batches are drawn from them. One byte lost changes the checksum.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "device.h"

namespace train {

struct Options {
  Bytes memory = tandem::MiB(160);
  unsigned passes = 1;  // over the data, per step: how much work a step is
};

class Network {
 public:
  static Result<std::unique_ptr<Network>> Create(Device* device, const Options& options);

  // One training step; its loss.
  Result<float> Step();

  // Of all the device memory, in a fixed order.
  Result<uint64_t> Checksum();

 private:
  struct Buffer {
    CUdeviceptr pointer = 0;
    Bytes size;
  };
  struct Layer {
    unsigned inputs = 0;
    unsigned outputs = 0;
    Buffer weights, momentum;
    Buffer values, gradient;  // of its outputs, for a whole batch
  };
  struct Kernels {
    CUfunction fill, stir, draw, forward, loss, backward, update;
  };

  Network(Device* device, const Options& options) : device_(device), options_(options) {}
  Status Allocate();
  Result<Buffer> Take(Bytes size);
  Status Initialize();
  Status Stir();
  Status TrainOn(const Buffer& data, unsigned batch_index);

  Device* const device_;
  const Options options_;
  Kernels kernels_{};
  std::vector<Buffer> buffers_;  // all of them
  Bytes taken_;
  std::vector<Buffer> data_;
  Buffer points_, targets_, loss_;
  std::array<Layer, 3> layers_;
  unsigned steps_ = 0;
};

}  // namespace train
