// The kernels of `train`. Every sum is taken by one thread in a fixed order, or by a fixed tree, so
// a run is the same to the last bit wherever its arithmetic is IEEE's.
//
// Compiled to kernels.ptx by tools/make_ptx.sh.
//
// A layer's weights are a matrix of (inputs + 1) rows and `outputs` columns; its last row is the
// bias. Activations are rows of a batch.
#include "kernel_words.h"

typedef unsigned Words __attribute__((ext_vector_type(4)));

constexpr unsigned kLossThreads = 256;  // network.cc launches `loss` with exactly this many

// Every word of `data` gets a value of its own.
extern "C" __global__ void fill(unsigned* data, unsigned words, unsigned seed) {
  for (unsigned i = Thread(); i < words; i += Threads()) {
    unsigned x = (i ^ seed) * 0x9e3779b1u;
    x ^= x >> 15;
    data[i] = x * 0x85ebca77u;
  }
}

// One step of a random number generator on every word: reads and rewrites all of `data`.
extern "C" __global__ void stir(Words* data, unsigned quads) {
  for (unsigned i = Thread(); i < quads; i += Threads()) data[i] = data[i] * 1664525u + 1013904223u;
}

// Makes a batch from 2 * batch random words: points of the square, and whether each lies in a disc.
extern "C" __global__ void draw(const unsigned* data, float* points, float* targets,
                                unsigned batch) {
  const unsigned i = Thread();
  if (i >= batch) return;
  const float x = static_cast<float>(data[2 * i] >> 8) * 0x1p-23f - 1.0f;
  const float y = static_cast<float>(data[2 * i + 1] >> 8) * 0x1p-23f - 1.0f;
  points[2 * i] = x;
  points[2 * i + 1] = y;
  targets[i] = x * x + y * y < 0.6f ? 1.0f : 0.0f;
}

// out = in * weights + bias; `rectify`: negative results become 0.
extern "C" __global__ void forward(const float* in, const float* weights, float* out,
                                   unsigned batch, unsigned inputs, unsigned outputs,
                                   unsigned rectify) {
  const unsigned i = Thread();
  if (i >= batch * outputs) return;
  const unsigned row = i / outputs;
  const unsigned column = i % outputs;
  float sum = weights[inputs * outputs + column];
  for (unsigned k = 0; k < inputs; ++k) {
    sum += in[row * inputs + k] * weights[k * outputs + column];
  }
  out[i] = rectify != 0 && sum < 0.0f ? 0.0f : sum;
}

// The mean square error, to *loss, and its gradient. One block of kLossThreads.
extern "C" __global__ void loss(const float* out, const float* targets, float* gradient,
                                float* loss, unsigned batch) {
  __shared__ float sums[kLossThreads];
  float sum = 0.0f;
  for (unsigned i = Lane(); i < batch; i += kLossThreads) {
    const float error = out[i] - targets[i];
    gradient[i] = 2.0f * error / static_cast<float>(batch);
    sum += error * error;
  }
  sums[Lane()] = sum;
  __syncthreads();
  for (unsigned half = kLossThreads / 2; half > 0; half /= 2) {
    if (Lane() < half) sums[Lane()] += sums[Lane() + half];
    __syncthreads();
  }
  if (Lane() == 0) *loss = sums[0] / static_cast<float>(batch);
}

// The gradient of a layer's inputs, which were rectified, from that of its outputs.
extern "C" __global__ void backward(const float* out_gradient, const float* weights,
                                    const float* in, float* in_gradient, unsigned batch,
                                    unsigned inputs, unsigned outputs) {
  const unsigned i = Thread();
  if (i >= batch * inputs) return;
  const unsigned row = i / inputs;
  const unsigned column = i % inputs;
  float sum = 0.0f;
  for (unsigned k = 0; k < outputs; ++k) {
    sum += out_gradient[row * outputs + k] * weights[column * outputs + k];
  }
  in_gradient[i] = in[i] > 0.0f ? sum : 0.0f;
}

// One step of gradient descent with momentum on a layer's weights.
extern "C" __global__ void update(const float* in, const float* out_gradient, float* weights,
                                  float* momentum, unsigned batch, unsigned inputs,
                                  unsigned outputs, float rate) {
  const unsigned i = Thread();
  if (i >= (inputs + 1) * outputs) return;
  const unsigned row = i / outputs;
  const unsigned column = i % outputs;
  float sum = 0.0f;
  for (unsigned k = 0; k < batch; ++k) {
    const float input = row < inputs ? in[k * inputs + row] : 1.0f;
    sum += input * out_gradient[k * outputs + column];
  }
  momentum[i] = 0.9f * momentum[i] + sum;
  weights[i] -= rate * momentum[i];
}
