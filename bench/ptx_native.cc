#include "bench/ptx_native.h"

#include <algorithm>

namespace tandem::bench {

void NativeVadd(const float* a, const float* b, float* c, size_t count) {
  for (size_t i = 0; i < count; ++i) c[i] = a[i] + b[i];
}

float NativeFma(float start, float a, float b, size_t count) {
  float x = start;
  for (size_t i = 0; i < count; ++i) x = x * a + b;
  return x;
}

void NativeMatmul(const float* a, const float* b, float* c, size_t n) {
  std::fill(c, c + n * n, 0.0f);
  for (size_t row = 0; row < n; ++row) {
    for (size_t k = 0; k < n; ++k) {
      const float left = a[row * n + k];
      for (size_t column = 0; column < n; ++column) c[row * n + column] += left * b[k * n + column];
    }
  }
}

float NativeReduce(const float* in, size_t count) {
  float sum = 0;
  for (size_t i = 0; i < count; ++i) sum += in[i];
  return sum;
}

void NativeScan(const int* in, int* out, size_t count, size_t block) {
  for (size_t start = 0; start < count; start += block) {
    int sum = 0;
    for (size_t i = start; i < start + block; ++i) out[i] = sum += in[i];
  }
}

void NativeMandelbrot(int* out, int width, int limit) {
  for (int i = 0; i < width * width; ++i) {
    const float scale = static_cast<float>(width);
    const int column = i % width, row = i / width;
    const float cx = -2.2f + 3.2f * static_cast<float>(column) / scale;
    const float cy = -1.4f + 2.8f * static_cast<float>(row) / scale;
    float x = 0, y = 0;
    int n = 0;
    while (n < limit && x * x + y * y < 4.0f) {
      const float t = x * x - y * y + cx;
      y = 2 * x * y + cy;
      x = t;
      ++n;
    }
    out[i] = n;
  }
}

}  // namespace tandem::bench
