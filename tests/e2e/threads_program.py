"""A program of 32 threads that allocate, copy, launch kernels and free at the same time, and know what
every byte has to be. Every other thread has a stream of its own, and every fourth one memory from
the device's pool; the rest is on the default stream.

  threads_program.py SEED ROUNDS     prints a checksum of all that it has read back
"""

import ctypes
import random
import sys
import threading
import zlib

THREADS = 32
KEPT = 3  # blocks that a thread has beside the newest
SIZES = (48 << 10, 192 << 10)  # bytes

PTX = b"""
.version 6.3
.target sm_50
.address_size 64
.visible .entry change(.param .u64 words, .param .u32 count, .param .u32 key)
{
  .reg .pred %p<2>;
  .reg .b32 %r<8>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [words];
  ld.param.u32 %r1, [count];
  ld.param.u32 %r2, [key];
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mov.u32 %r5, %tid.x;
  mad.lo.u32 %r6, %r3, %r4, %r5;
  setp.ge.u32 %p1, %r6, %r1;
  @%p1 bra DONE;
  mul.wide.u32 %rd2, %r6, 4;
  add.s64 %rd3, %rd1, %rd2;
  ld.global.u32 %r7, [%rd3];
  xor.b32 %r7, %r7, %r2;
  st.global.u32 [%rd3], %r7;
DONE:
  ret;
}
"""

cuda = ctypes.CDLL("libcuda.so.1")  # its calls let other threads of Python run


def check(result):
    assert result == 0, result


def xor(data, key):
    keys = key.to_bytes(4, "little") * (len(data) // 4)
    return (int.from_bytes(data, "little") ^ int.from_bytes(keys, "little")).to_bytes(len(data), "little")


class Block:
    """Memory of the device's, and what is in it."""

    def __init__(self, stream, pooled, data):
        self.stream, self.pooled, self.data = stream, pooled, data
        self.pointer = ctypes.c_uint64()
        size = ctypes.c_size_t(len(data))
        if pooled:
            check(cuda.cuMemAllocAsync(ctypes.byref(self.pointer), size, stream))
        else:
            check(cuda.cuMemAlloc_v2(ctypes.byref(self.pointer), size))
        check(cuda.cuMemcpyHtoDAsync_v2(self.pointer, data, size, stream))

    def change(self, function, key):
        values = [self.pointer, ctypes.c_uint32(len(self.data) // 4), ctypes.c_uint32(key)]
        arguments = (ctypes.c_void_p * 3)(*(ctypes.addressof(value) for value in values))
        groups = (len(self.data) // 4 + 255) // 256
        check(cuda.cuLaunchKernel(function, groups, 1, 1, 256, 1, 1, 0, self.stream, arguments, None))
        self.data = xor(self.data, key)

    def copied_to(self, other):
        check(cuda.cuMemcpyDtoDAsync_v2(other.pointer, self.pointer, ctypes.c_size_t(len(self.data)), self.stream))
        other.data = self.data + other.data[len(self.data) :]

    def read(self):
        data = ctypes.create_string_buffer(len(self.data))
        check(cuda.cuMemcpyDtoHAsync_v2(data, self.pointer, ctypes.c_size_t(len(self.data)), self.stream))
        check(cuda.cuStreamSynchronize(self.stream))
        assert data.raw == self.data, f"{len(data.raw)} bytes at {self.pointer.value:#x} are others"
        return data.raw

    def free(self):
        if self.pooled:
            check(cuda.cuMemFreeAsync(self.pointer, self.stream))
        else:
            check(cuda.cuMemFree_v2(self.pointer))


def work(context, function, number, seed, rounds):
    """A checksum of what it reads."""
    chance = random.Random(f"{seed} {number}")
    stream, checksum, blocks = ctypes.c_void_p(), 0, []
    check(cuda.cuCtxSetCurrent(context))
    if number % 2 == 0:
        check(cuda.cuStreamCreate(ctypes.byref(stream), 1))
    for _ in range(rounds):
        block = Block(stream, number % 4 == 0, chance.randbytes(4 * chance.randrange(SIZES[0] // 4, SIZES[1] // 4)))
        block.change(function, chance.getrandbits(32))
        blocks.append(block)
        source, target = sorted(chance.choices(blocks, k=2), key=lambda each: len(each.data))
        if source is not target:
            source.copied_to(target)
        checksum = zlib.crc32(chance.choice(blocks).read(), checksum)
        if len(blocks) > KEPT:
            old = blocks.pop(chance.randrange(len(blocks)))
            checksum = zlib.crc32(old.read(), checksum)
            old.free()
    for block in blocks:
        checksum = zlib.crc32(block.read(), checksum)
        block.free()
    check(cuda.cuStreamSynchronize(stream))
    return checksum


def main(seed, rounds):
    context, module, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    check(cuda.cuInit(0))
    check(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0))
    check(cuda.cuModuleLoadData(ctypes.byref(module), PTX))
    check(cuda.cuModuleGetFunction(ctypes.byref(function), module, b"change"))
    checksums = [None] * THREADS

    def run(number):
        checksums[number] = work(context, function, number, seed, rounds)

    threads = [threading.Thread(target=run, args=[number]) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(*checksums)
    check(cuda.cuCtxDestroy_v2(context))
    return 1 if None in checksums else 0  # a thread that met an error has printed it


sys.exit(main(sys.argv[1], int(sys.argv[2])))
