"""A program on the CUDA driver API, for tests of how processes share a device: it does as the lines
on its standard input say, and answers each with a line.

  kernel N      queues a kernel of N rounds on each of 32 lanes       "queued"
  endless       queues a kernel that does not end                     "queued"
  copy up|down|both N   queues copies of N bytes over the bus         "queued"
  capture N     begins to capture a graph with a kernel of N rounds   "capturing"
  launch        ends the capture, launches the graph and waits        "launched RESULT"
  sync          waits for all that is queued                          "sync RESULT"
  measure WHAT N   queues it between two events and waits             "took NS"
  steady WHAT N DEPTH   keeps DEPTH of them queued all the time; "running" when the first is done.
                Then `mark` measures ten from end to end, "took NS", and `end` stops, "ended".
  fill SEED     fills its memory with random bytes                    "digest CRC"
  digest        of its memory, but for what kernels write             "digest CRC"
  free          VRAM that is free, and all of it                      "free BYTES BYTES"
  timer         the device's %globaltimer                             "timer NS"
"""

import ctypes
import random
import select
import sys
import zlib

cuda = ctypes.CDLL("libcuda.so.1")
PTX = b"""
.version 6.3
.target sm_50
.address_size 64
.visible .entry spin(.param .u64 rounds, .param .u64 out)
{
  .reg .pred %p<2>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [rounds];
  ld.param.u64 %rd3, [out];
  mov.u64 %rd2, 0;
LOOP:
  add.s64 %rd2, %rd2, 1;
  setp.lt.u64 %p1, %rd2, %rd1;
  @%p1 bra LOOP;
  mov.u64 %rd4, %globaltimer;
  st.global.u64 [%rd3], %rd4;
  ret;
}
"""


def check(result):
    assert result == 0, result


class Pair:
    """Two events around what is queued between them."""

    def __init__(self):
        self.events = [ctypes.c_void_p(), ctypes.c_void_p()]
        for event in self.events:
            check(cuda.cuEventCreate(ctypes.byref(event), 0))

    def record(self, which):
        check(cuda.cuEventRecord(self.events[which], stream))

    def wait(self):
        check(cuda.cuEventSynchronize(self.events[1]))

    def ns(self):
        ms = ctypes.c_float()
        check(cuda.cuEventElapsedTime(ctypes.byref(ms), *self.events))
        return round(ms.value * 1e6)


context, module, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
stream, back, device, host = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_void_p()
ROOM = 64 << 20
check(cuda.cuInit(0))
check(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0))
check(cuda.cuModuleLoadData(ctypes.byref(module), PTX))
check(cuda.cuModuleGetFunction(ctypes.byref(function), module, b"spin"))
check(cuda.cuStreamCreate(ctypes.byref(stream), 1))
check(cuda.cuMemAlloc_v2(ctypes.byref(device), ctypes.c_size_t(ROOM)))
check(cuda.cuMemHostAlloc(ctypes.byref(host), ctypes.c_size_t(ROOM), 0))


def kernel(rounds):
    value = ctypes.c_uint64(rounds)
    out = ctypes.c_uint64(device.value)
    parameters = (ctypes.c_void_p * 2)(
        *(ctypes.cast(ctypes.pointer(p), ctypes.c_void_p).value for p in (value, out))
    )
    check(cuda.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, parameters, None))


def up(size):
    check(cuda.cuMemcpyHtoDAsync_v2(device, host, ctypes.c_size_t(size), stream))


def down(size):
    check(cuda.cuMemcpyDtoHAsync_v2(host, device, ctypes.c_size_t(size), stream))


def digest():
    """Of all but the first bytes, where kernels leave the time."""
    check(cuda.cuStreamSynchronize(stream))
    check(cuda.cuMemcpyDtoH_v2(host, device, ctypes.c_size_t(ROOM)))
    return zlib.crc32(ctypes.string_at(host.value + 8, ROOM - 8))


WORK = {"kernel": kernel, "up": up, "down": down}


def say(*words):
    print(*words, flush=True)


def steady(work, amount, depth):
    """Work without a gap, so that what is measured in between never waits for this program."""
    waiting, measured, left = [], None, 0
    while True:
        while len(waiting) < depth:
            pair = Pair()
            pair.record(0)
            work(amount)
            pair.record(1)
            waiting.append(pair)
        first = waiting.pop(0)
        first.wait()
        if measured is None:
            say("running")
            measured = []
        if left > 0:
            measured.append(first)
            left -= 1
            if left == 0:
                # From the end of the one before to the end of the last.
                ms = ctypes.c_float()
                ends = measured[0].events[1], measured[-1].events[1]
                check(cuda.cuEventElapsedTime(ctypes.byref(ms), *ends))
                say("took", round(ms.value * 1e6))
        if select.select([sys.stdin], [], [], 0)[0]:
            line = sys.stdin.readline().strip()
            if line != "mark":
                break
            measured, left = [], 11
    check(cuda.cuStreamSynchronize(stream))
    say("ended")


say("ready")
while line := sys.stdin.readline():
    command, *words = line.split()
    if command in WORK:
        WORK[command](int(words[0]))
        say("queued")
    elif command == "endless":
        kernel(1 << 62)
        say("queued")
    elif command == "capture":
        check(cuda.cuStreamBeginCapture_v2(stream, 0))
        kernel(int(words[0]))
        say("capturing")
    elif command == "launch":
        graph, runnable = ctypes.c_void_p(), ctypes.c_void_p()
        check(cuda.cuStreamEndCapture(stream, ctypes.byref(graph)))
        check(cuda.cuGraphInstantiateWithFlags(ctypes.byref(runnable), graph, ctypes.c_ulonglong(0)))
        check(cuda.cuGraphLaunch(runnable, stream))
        say("launched", cuda.cuCtxSynchronize())
    elif command == "sync":
        say("sync", cuda.cuCtxSynchronize())
    elif command == "measure":
        pair = Pair()
        pair.record(0)
        WORK[words[0]](int(words[1]))
        pair.record(1)
        pair.wait()
        say("took", pair.ns())
    elif command == "steady":
        steady(WORK[words[0]], int(words[1]), int(words[2]))
    elif command == "fill":
        ctypes.memmove(host, random.Random(int(words[0])).randbytes(ROOM), ROOM)
        check(cuda.cuMemcpyHtoD_v2(device, host, ctypes.c_size_t(ROOM)))
        say("digest", digest())
    elif command == "digest":
        say("digest", digest())
    elif command == "free":
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        check(cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)))
        say("free", free.value, total.value)
    elif command == "timer":
        value = ctypes.c_uint64()
        kernel(1)
        check(cuda.cuCtxSynchronize())
        check(cuda.cuMemcpyDtoH_v2(ctypes.byref(value), device, ctypes.c_size_t(8)))
        say("timer", value.value)
