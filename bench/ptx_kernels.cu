// The kernels of `./dev bench ptx`. ptx_kernels.h holds what Debian's clang makes of them, by the
// command of tools/make_ptx.sh, but with loops unrolled.
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define TX __nvvm_read_ptx_sreg_tid_x()
#define TY __nvvm_read_ptx_sreg_tid_y()
#define BX __nvvm_read_ptx_sreg_ctaid_x()
#define BY __nvvm_read_ptx_sreg_ctaid_y()
#define NX __nvvm_read_ptx_sreg_ntid_x()

extern "C" __global__ void vadd(const float* a, const float* b, float* c) {
  int i = BX * NX + TX;
  c[i] = a[i] + b[i];
}
extern "C" __global__ void fma_loop(float* out, float a, float b, int n) {
  float x = TX, y = TX + 1.0f, z = TX + 2.0f, w = TX + 3.0f;
#pragma unroll 4
  for (int i = 0; i < n; ++i) {
    x = __builtin_fmaf(x, a, b); y = __builtin_fmaf(y, a, b);
    z = __builtin_fmaf(z, a, b); w = __builtin_fmaf(w, a, b);
  }
  out[BX * NX + TX] = x + y + z + w;
}
extern "C" __global__ void matmul(const float* a, const float* b, float* c, int n) {
  __shared__ float s[16][16], t[16][16];
  int row = BY * 16 + TY, col = BX * 16 + TX;
  float sum = 0;
  for (int k = 0; k < n; k += 16) {
    s[TY][TX] = a[row * n + k + TX];
    t[TY][TX] = b[(k + TY) * n + col];
    __syncthreads();
    for (int i = 0; i < 16; ++i) sum = __builtin_fmaf(s[TY][i], t[i][TX], sum);
    __syncthreads();
  }
  c[row * n + col] = sum;
}
extern "C" __global__ void reduce(const float* in, float* out, int count, int step) {
  float x = 0;
  for (int i = BX * NX + TX; i < count; i += step) x += in[i];
  for (int d = 16; d > 0; d /= 2) x += __nvvm_shfl_sync_bfly_f32(0xffffffff, x, d, 31);
  if (TX % 32 == 0) out[(BX * NX + TX) / 32] = x;
}
// Prefix sums of each block of 1024, by shuffles, and by shared memory alone.
extern "C" __global__ void scan(const int* in, int* out) {
  __shared__ int totals[32];
  int i = BX * NX + TX, lane = TX % 32, warp = TX / 32;
  int x = in[i];
  for (int d = 1; d < 32; d *= 2) {
    int y = __nvvm_shfl_sync_up_i32(0xffffffff, x, d, 0);
    if (lane >= d) x += y;
  }
  if (lane == 31) totals[warp] = x;
  __syncthreads();
  if (warp == 0) {
    int total = totals[lane];
    for (int d = 1; d < 32; d *= 2) {
      int y = __nvvm_shfl_sync_up_i32(0xffffffff, total, d, 0);
      if (lane >= d) total += y;
    }
    totals[lane] = total;
  }
  __syncthreads();
  if (warp > 0) x += totals[warp - 1];
  out[i] = x;
}
extern "C" __global__ void scan_shared(const int* in, int* out) {
  __shared__ int sums[1024];
  int i = BX * NX + TX;
  sums[TX] = in[i];
  __syncthreads();
#pragma unroll 1
  for (int d = 1; d < 1024; d *= 2) {
    int x = TX >= d ? sums[TX - d] : 0;
    __syncthreads();
    sums[TX] += x;
    __syncthreads();
  }
  out[i] = sums[TX];
}
extern "C" __global__ void mandelbrot(int* out, int width, int limit) {
  int i = BX * NX + TX;
  float cx = -2.2f + 3.2f * (i % width) / width, cy = -1.4f + 2.8f * (i / width) / width;
  float x = 0, y = 0;
  int n = 0;
  while (n < limit && x * x + y * y < 4.0f) {
    float t = x * x - y * y + cx;
    y = 2 * x * y + cy;
    x = t;
    ++n;
  }
  out[i] = n;
}
