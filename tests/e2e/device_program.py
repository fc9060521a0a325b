"""A program on the CUDA driver API, for tests of how processes share a device: it does as the lines
on its standard input say, and answers each with a line. Its argument: the bytes of its
memory, by default 64 MiB.

  kernel N      queues a kernel of N rounds on each of 32 lanes       "queued"
  endless       queues a kernel that does not end                     "queued"
  halves N      queues a kernel that makes N random numbers on each of 32 lanes, waits for
                `release`, makes N more and writes the last ones to memory      "queued", "released"
  slowly N      queues a copy of N bytes from the device              "queued"
  begun         waits until the last of these three is under way      "begun"
  arrived N     whether the first N bytes of `slowly` have come       "arrived yes", "arrived no"
  copy up|down|both N   queues copies of N bytes over the bus         "queued"
  capture N     begins to capture a graph with a kernel of N rounds   "capturing"
  launch        ends the capture, launches the graph and waits        "launched RESULT"
  node          adds to a graph what fills its memory                 "node RESULT"
  sync          waits for all that is queued                          "sync RESULT"
  measure WHAT N   queues it between two events and waits             "took NS"
  steady WHAT N DEPTH   keeps DEPTH of them queued all the time; "running" when the first is done.
                Then `mark` measures ten from end to end, "took NS", and `end` stops, "ended".
  fill SEED     fills its memory with random bytes                    "digest CRC"
  set N         fills its memory with bytes N                         "digest CRC"
  rows N        fills the first 3000 bytes of each of its pages with bytes N, and copies bytes N + 1
                to the 1000 after the first 500, and those back          "rows right", "rows wrong"
  digest        of its memory, but for what kernels write             "digest CRC"
  through AT    queues a kernel that adds 1 to each of 32 words at AT bytes of its memory, whose
                address it finds in other memory of its own                      "queued"
  free          VRAM that is free, and all of it                      "free BYTES BYTES"
  timer         the device's %globaltimer                             "timer NS"
"""

import ctypes
import random
import select
import struct
import sys
import time
import zlib

cuda = ctypes.CDLL("libcuda.so.1")
PTX = b"""
.version 6.3
.target sm_50
.address_size 64
.visible .entry spin(.param .u64 rounds, .param .u64 out, .param .u64 begun)
{
  .reg .pred %p<2>;
  .reg .b32 %r<2>;
  .reg .b64 %rd<6>;
  ld.param.u64 %rd1, [rounds];
  ld.param.u64 %rd3, [out];
  ld.param.u64 %rd5, [begun];
  mov.u32 %r1, 1;
  st.volatile.u32 [%rd5], %r1;
  mov.u64 %rd2, 0;
LOOP:
  add.s64 %rd2, %rd2, 1;
  setp.lt.u64 %p1, %rd2, %rd1;
  @%p1 bra LOOP;
  mov.u64 %rd4, %globaltimer;
  st.global.u64 [%rd3], %rd4;
  ret;
}
.visible .entry halves(.param .u64 rounds, .param .u64 out, .param .u64 begun, .param .u64 go)
{
  .reg .pred %p<2>;
  .reg .b32 %r<5>;
  .reg .b64 %rd<7>;
  ld.param.u64 %rd1, [rounds];
  ld.param.u64 %rd2, [out];
  ld.param.u64 %rd3, [begun];
  ld.param.u64 %rd4, [go];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd6, %r1, 4;
  add.s64 %rd2, %rd2, %rd6;
  mov.u32 %r2, 1;
  mov.u32 %r4, 0;
HALF:
  mov.u64 %rd5, 0;
LOOP:
  mad.lo.u32 %r1, %r1, 1664525, 1013904223;
  add.s64 %rd5, %rd5, 1;
  setp.lt.u64 %p1, %rd5, %rd1;
  @%p1 bra LOOP;
  st.volatile.u32 [%rd3], %r2;
WAIT:
  ld.volatile.u32 %r3, [%rd4];
  setp.eq.u32 %p1, %r3, 0;
  @%p1 bra WAIT;
  add.u32 %r4, %r4, 1;
  setp.lt.u32 %p1, %r4, 2;
  @%p1 bra HALF;
  st.global.u32 [%rd2], %r1;
  ret;
}
.visible .entry through(.param .u64 cell)
{
  .reg .b32 %r<3>;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [cell];
  ld.global.u64 %rd2, [%rd1];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd1, %r1, 4;
  add.u64 %rd2, %rd2, %rd1;
  ld.global.u32 %r2, [%rd2];
  add.u32 %r2, %r2, 1;
  st.global.u32 [%rd2], %r2;
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


context, module = ctypes.c_void_p(), ctypes.c_void_p()
spin, halves, written_through = (ctypes.c_void_p() for _ in range(3))
signs = ctypes.c_void_p()
stream, back, device, host = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_void_p()
ROOM = int(sys.argv[1]) if sys.argv[1:] else 64 << 20
check(cuda.cuInit(0))
check(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0))
check(cuda.cuModuleLoadData(ctypes.byref(module), PTX))
check(cuda.cuModuleGetFunction(ctypes.byref(spin), module, b"spin"))
check(cuda.cuModuleGetFunction(ctypes.byref(halves), module, b"halves"))
check(cuda.cuModuleGetFunction(ctypes.byref(written_through), module, b"through"))
check(cuda.cuStreamCreate(ctypes.byref(stream), 1))
check(cuda.cuMemAlloc_v2(ctypes.byref(device), ctypes.c_size_t(ROOM)))
cell = ctypes.c_uint64()  # made when it is needed
check(cuda.cuMemHostAlloc(ctypes.byref(host), ctypes.c_size_t(ROOM), 0))
check(cuda.cuMemHostAlloc(ctypes.byref(signs), ctypes.c_size_t(8), 0))
# What work that is under way writes to, and what it waits for.
begun, go = (ctypes.c_uint32.from_address(signs.value + place) for place in (0, 4))


def launch(function, *values):
    words = [ctypes.c_uint64(value) for value in values]
    parameters = (ctypes.c_void_p * len(words))(*map(ctypes.addressof, words))
    check(cuda.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, parameters, None))


def kernel(rounds):
    launch(spin, rounds, device.value, ctypes.addressof(begun))


def up(size):
    check(cuda.cuMemcpyHtoDAsync_v2(device, host, ctypes.c_size_t(size), stream))


def down(size):
    check(cuda.cuMemcpyDtoHAsync_v2(host, device, ctypes.c_size_t(size), stream))


def digest():
    """Of all but the first bytes, where kernels leave the time."""
    check(cuda.cuStreamSynchronize(stream))
    check(cuda.cuMemcpyDtoH_v2(host, device, ctypes.c_size_t(ROOM)))
    return zlib.crc32(ctypes.string_at(host.value + 8, ROOM - 8))


def rows(value):
    pages = ROOM // 4096
    check(cuda.cuMemsetD2D8_v2(device, ctypes.c_size_t(4096), value, ctypes.c_size_t(3000), ctypes.c_size_t(pages)))
    row = bytes([value + 1]) * 1000
    ours = ctypes.create_string_buffer(row * pages, len(row) * pages)
    # A side of CUDA_MEMCPY2D: x and y, the type of memory, its addresses, the pitch.
    here = struct.pack("=QQi4xQQQQ", 0, 0, 1, ctypes.addressof(ours), 0, 0, len(row))
    there = struct.pack("=QQi4xQQQQ", 500, 0, 2, 0, device.value, 0, 4096)
    size = struct.pack("=QQ", len(row), pages)
    check(cuda.cuMemcpy2D_v2(here + there + size))
    ctypes.memset(ours, 0, len(ours))
    check(cuda.cuMemcpy2D_v2(there + here + size))
    return ours.raw == row * pages


WORK = {"kernel": kernel, "up": up, "down": down}


def say(*words):
    print(*words, flush=True)


def steady(work, amount, depth):
    """Queues work without a gap, so that a measurement meanwhile never waits for this program."""
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
        sign, begun.value = begun, 0
        kernel(1 << 62)
        say("queued")
    elif command == "halves":
        sign, begun.value, go.value = begun, 0, 0
        launch(halves, int(words[0]), device.value + 8, ctypes.addressof(begun), ctypes.addressof(go))
        say("queued")
    elif command == "release":
        go.value = 1
        say("released")
    elif command == "slowly":
        check(cuda.cuMemsetD8_v2(device, 1, ctypes.c_size_t(ROOM)))
        check(cuda.cuCtxSynchronize())
        sign = ctypes.c_uint32.from_address(host.value)
        sign.value = 0
        down(int(words[0]))
        say("queued")
    elif command == "arrived":
        say("arrived", "yes" if ctypes.string_at(host, int(words[0])) == b"\1" * int(words[0]) else "no")
    elif command == "begun":
        while sign.value == 0:
            time.sleep(0.001)
        say("begun")
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
    elif command == "node":
        graph, node = ctypes.c_void_p(), ctypes.c_void_p()
        check(cuda.cuGraphCreate(ctypes.byref(graph), 0))
        # The address, pitch and value; the size of an element; width and height.
        fill = struct.pack("=QQIIQQ", device.value, 0, 7, 1, ROOM, 1)
        say("node", cuda.cuGraphAddMemsetNode(ctypes.byref(node), graph, None, ctypes.c_size_t(0), fill, context))
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
    elif command == "set":
        check(cuda.cuMemsetD8_v2(device, int(words[0]), ctypes.c_size_t(ROOM)))
        say("digest", digest())
    elif command == "rows":
        say("rows", "right" if rows(int(words[0])) else "wrong")
    elif command == "digest":
        say("digest", digest())
    elif command == "through":
        if cell.value == 0:
            check(cuda.cuMemAlloc_v2(ctypes.byref(cell), ctypes.c_size_t(8)))
        address = ctypes.c_uint64(device.value + int(words[0]))
        check(cuda.cuMemcpyHtoD_v2(cell, ctypes.byref(address), ctypes.c_size_t(8)))
        launch(written_through, cell.value)
        say("queued")
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
