// The loops that native code runs where the benchmark's kernels run in the interpreter.
#pragma once

#include <cstddef>

namespace tandem::bench {

void NativeVadd(const float* a, const float* b, float* c, size_t count);
// One chain of `count` multiplications and additions; returns its end.
float NativeFma(float start, float a, float b, size_t count);
void NativeMatmul(const float* a, const float* b, float* c, size_t n);
float NativeReduce(const float* in, size_t count);
// Prefix sums that begin anew after each `block` elements.
void NativeScan(const int* in, int* out, size_t count, size_t block);
void NativeMandelbrot(int* out, int width, int limit);

}  // namespace tandem::bench
