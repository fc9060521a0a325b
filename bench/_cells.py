"""What the cells of a benchmark's notebook do on the device; run in a kernel by bench/_kernel.py.

The memory lives across cells: each cell advances one word in every chunk of it, so that a byte that a
hand-over loses or mixes up shows at the end.
"""

import ctypes
import itertools
import time

CHUNK = 2 << 20
STEP_NS = 20_000_000  # of a cell's work: one kernel
PTX = b"""
.version 6.3
.target sm_50
.address_size 64
.visible .entry advance(.param .u64 memory, .param .u64 chunk)
{
  .reg .b32 %r<4>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [memory];
  ld.param.u64 %rd2, [chunk];
  mov.u32 %r1, %ctaid.x;
  cvt.u64.u32 %rd3, %r1;
  mad.lo.u64 %rd4, %rd3, %rd2, %rd1;
  ld.global.u32 %r2, [%rd4];
  mad.lo.u32 %r3, %r2, 1664525, 1013904223;
  st.global.u32 [%rd4], %r3;
  ret;
}
.visible .entry spin(.param .u64 length)
{
  .reg .pred %p<2>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [length];
  mov.u64 %rd2, %globaltimer;
LOOP:
  mov.u64 %rd3, %globaltimer;
  sub.s64 %rd4, %rd3, %rd2;
  setp.lt.u64 %p1, %rd4, %rd1;
  @%p1 bra LOOP;
  ret;
}
"""
cuda = ctypes.CDLL("libcuda.so.1")


def call(name, *arguments):
    result = getattr(cuda, name)(*arguments)
    if result != 0:
        raise RuntimeError(f"{name}: CUDA error {result}")


def launching(kernel, blocks, *words):
    """What cuLaunchKernel takes for blocks of one thread, behind what keeps it alive."""
    words = [ctypes.c_uint64(word) for word in words]
    parameters = (ctypes.c_void_p * len(words))(*(ctypes.addressof(word) for word in words))
    return words, (kernel, blocks, 1, 1, 1, 1, 1, 0, None, parameters, None)


class Memory:
    """Device memory of `held` bytes, and work on it that takes as long as it is told."""

    def __init__(self, held):
        self.chunks = held // CHUNK
        self.advanced = []  # what each launch of `advance` returned
        self.begun_ns = self.ended_ns = 0
        context, module = ctypes.c_void_p(), ctypes.c_void_p()
        self.advance, self.spin = ctypes.c_void_p(), ctypes.c_void_p()
        self.address = ctypes.c_uint64()
        call("cuInit", 0)
        call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        call("cuCtxSetCurrent", context)
        call("cuModuleLoadData", ctypes.byref(module), PTX)
        call("cuModuleGetFunction", ctypes.byref(self.advance), module, b"advance")
        call("cuModuleGetFunction", ctypes.byref(self.spin), module, b"spin")
        call("cuMemAlloc_v2", ctypes.byref(self.address), ctypes.c_size_t(held))
        call("cuMemsetD32_v2", self.address, ctypes.c_uint(7), ctypes.c_size_t(held // 4))
        call("cuCtxSynchronize")

    @property
    def advances(self):
        return len(self.advanced)

    def work(self, length_ns, queued=False):
        """A cell's work: `length_ns` of kernels, and one step of the memory. It waits for each kernel, as a
        loop that prints its loss, or queues all of them at once."""
        self.begun_ns = time.monotonic_ns()
        for done in range(0, length_ns, STEP_NS):
            _, arguments = launching(self.spin, 1, min(STEP_NS, length_ns - done))
            call("cuLaunchKernel", *arguments)
            if not queued:
                call("cuCtxSynchronize")
        # Python raises an interrupt between two instructions of its own: never between a launch and its count.
        _, arguments = launching(self.advance, self.chunks, self.address.value, CHUNK)
        self.advanced.extend(itertools.starmap(cuda.cuLaunchKernel, [arguments]))
        if self.advanced[-1] != 0:
            raise RuntimeError(f"cuLaunchKernel: CUDA error {self.advanced.pop()}")
        call("cuCtxSynchronize")
        self.ended_ns = time.monotonic_ns()

    def wrong_words(self):
        """How many words of the memory are not what they have to be."""
        first = 7
        for _ in range(self.advances):
            first = (first * 1664525 + 1013904223) & 0xFFFFFFFF
        expected = first.to_bytes(4, "little") + (7).to_bytes(4, "little") * (CHUNK // 4 - 1)
        wrong = 0
        chunk = ctypes.create_string_buffer(CHUNK)
        for number in range(self.chunks):
            source = ctypes.c_uint64(self.address.value + number * CHUNK)
            call("cuMemcpyDtoH_v2", chunk, source, ctypes.c_size_t(CHUNK))
            found = chunk.raw
            if found != expected:
                wrong += sum(found[i : i + 4] != expected[i : i + 4] for i in range(0, CHUNK, 4))
        return wrong
