"""A program that shares device memory with others by handles (cuIpcGetMemHandle), for tests, on the
device with the ordinal $ON_DEVICE: it does as the lines on its standard input say, and answers each with a line.

  make BYTES SEED    allocates BYTES bytes, filled at random           "made NUMBER"
  share NUMBER       a handle of it, in hexadecimal                    "handle HEX" or "refused RESULT"
  open HEX           what another has shared                           "opened NUMBER" or "refused RESULT"
  where NUMBER       its address, and the block that the driver finds around its end  "where ADDRESS BASE SIZE"
  write NUMBER SEED  fills it anew                                     "digest CRC"
  digest NUMBER      of its bytes                                      "digest CRC"
  close NUMBER       closes what was opened                            "closed RESULT"
  free NUMBER        frees what was made                               "freed RESULT"
"""

import ctypes
import os
import random
import sys
import zlib

cuda = ctypes.CDLL("libcuda.so.1")


class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 64)]


def check(result):
    assert result == 0, result


def say(*words):
    print(*words, flush=True)


def size_at(pointer):
    size = ctypes.c_size_t()
    check(cuda.cuMemGetAddressRange_v2(None, ctypes.byref(size), pointer))
    return size


def fill(pointer, seed):
    data = random.Random(seed).randbytes(size_at(pointer).value)
    check(cuda.cuMemcpyHtoD_v2(pointer, data, size_at(pointer)))


def digest(pointer):
    data = ctypes.create_string_buffer(size_at(pointer).value)
    check(cuda.cuMemcpyDtoH_v2(data, pointer, size_at(pointer)))
    return zlib.crc32(data.raw)


context = ctypes.c_void_p()
check(cuda.cuInit(0))
check(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, int(os.environ.get("ON_DEVICE", "0"))))
blocks = []
say("ready")
while line := sys.stdin.readline():
    command, *words = line.split()
    pointer = ctypes.c_uint64()
    if command == "make":
        check(cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(int(words[0]))))
        fill(pointer, int(words[1]))
        blocks.append(pointer)
        say("made", len(blocks) - 1)
        continue
    if command == "open":
        handle = Handle.from_buffer_copy(bytes.fromhex(words[0]))
        result = cuda.cuIpcOpenMemHandle_v2(ctypes.byref(pointer), handle, 1)
        if result == 0:
            blocks.append(pointer)
        say(*(("opened", len(blocks) - 1) if result == 0 else ("refused", result)))
        continue
    pointer = blocks[int(words[0])]
    if command == "share":
        handle = Handle()
        result = cuda.cuIpcGetMemHandle(ctypes.byref(handle), pointer)
        say(*(("handle", ctypes.string_at(ctypes.byref(handle), 64).hex()) if result == 0 else ("refused", result)))
    elif command == "where":
        base, size = ctypes.c_uint64(), ctypes.c_size_t()
        last = ctypes.c_uint64(pointer.value + size_at(pointer).value - 1)
        check(cuda.cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(size), last))
        say("where", pointer.value, base.value, size.value)
    elif command == "write":
        fill(pointer, int(words[1]))
        say("digest", digest(pointer))
    elif command == "digest":
        say("digest", digest(pointer))
    elif command == "close":
        say("closed", cuda.cuIpcCloseMemHandle(pointer))
    elif command == "free":
        say("freed", cuda.cuMemFree_v2(pointer))
