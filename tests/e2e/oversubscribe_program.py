"""A program on the CUDA driver API that may want more memory than there is: it does as the lines on
its standard input say, and answers each with a line.

  alloc N MIB          allocates N blocks of MIB MiB              "allocated COUNT"
  free FIRST N         frees N of them, from FIRST on             "freed"
  fill SEED            fills them with random bytes               "filled"
  add FIRST N ROUNDS   a kernel adds 1 to a word in each 4 KiB of N blocks, ROUNDS times, each
                       named by an argument; waits                "added RESULT"
  managed MIB          allocates managed memory, which stays on the card   "managed RESULT"
  digest               of all blocks                              "digest CRC"
  info                 what cuMemGetInfo says                     "info FREE TOTAL"
"""

import ctypes
import random
import sys
import zlib

cuda = ctypes.CDLL("libcuda.so.1")
MIB = 1 << 20
PTX = b"""
.version 6.3
.target sm_50
.address_size 64
.visible .entry add(.param .u64 block, .param .u64 count)
{
  .reg .pred %p<2>;
  .reg .b32 %r<5>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [block];
  ld.param.u64 %rd2, [count];
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.u32 %r1, %r1, %r2, %r3;
  cvt.u64.u32 %rd3, %r1;
  setp.ge.u64 %p1, %rd3, %rd2;
  @%p1 bra DONE;
  shl.b64 %rd3, %rd3, 12;
  add.s64 %rd4, %rd1, %rd3;
  ld.global.u32 %r4, [%rd4];
  add.u32 %r4, %r4, 1;
  st.global.u32 [%rd4], %r4;
DONE:
  ret;
}
"""


def check(result):
    assert result == 0, result


context, module, kernel = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
check(cuda.cuInit(0))
check(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0))
check(cuda.cuModuleLoadData(ctypes.byref(module), PTX))
check(cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"add"))
blocks = []  # (address, bytes)


def alloc(count, mib):
    for i in range(count):
        block = ctypes.c_uint64()
        if cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(mib * MIB)) != 0:
            return f"allocated {i}"
        blocks.append((block.value, mib * MIB))
    return f"allocated {count}"


def free(first, count):
    for address, _ in blocks[first : first + count]:
        check(cuda.cuMemFree_v2(ctypes.c_uint64(address)))
    del blocks[first : first + count]
    return "freed"


def fill(seed):
    for i, (address, size) in enumerate(blocks):
        data = random.Random(seed * 1000 + i).randbytes(MIB) * (size // MIB)
        check(cuda.cuMemcpyHtoD_v2(ctypes.c_uint64(address), data, ctypes.c_size_t(size)))
    return "filled"


def add(first, count, rounds):
    for _ in range(rounds):
        for address, size in blocks[first : first + count]:
            words = [ctypes.c_uint64(address), ctypes.c_uint64(size >> 12)]
            parameters = (ctypes.c_void_p * 2)(*map(ctypes.addressof, words))
            grid = (size >> 12) // 128
            check(cuda.cuLaunchKernel(kernel, grid, 1, 1, 128, 1, 1, 0, None, parameters, None))
    return f"added {cuda.cuCtxSynchronize()}"


def digest():
    crc = 0
    for address, size in blocks:
        data = ctypes.create_string_buffer(size)
        check(cuda.cuMemcpyDtoH_v2(data, ctypes.c_uint64(address), ctypes.c_size_t(size)))
        crc = zlib.crc32(data, crc)
    return f"digest {crc}"


def managed(mib):
    block = ctypes.c_uint64()
    return f"managed {cuda.cuMemAllocManaged(ctypes.byref(block), ctypes.c_size_t(mib * MIB), 1)}"


def info():
    free_bytes, total = ctypes.c_size_t(), ctypes.c_size_t()
    check(cuda.cuMemGetInfo_v2(ctypes.byref(free_bytes), ctypes.byref(total)))
    return f"info {free_bytes.value} {total.value}"


ORDERS = {each.__name__: each for each in (alloc, free, fill, add, managed, digest, info)}
print("ready", flush=True)
for line in sys.stdin:
    order, *numbers = line.split()
    print(ORDERS[order](*map(int, numbers)), flush=True)
