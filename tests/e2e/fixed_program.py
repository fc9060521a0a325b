"""A program that takes memory which cannot be swapped, for tests of how it is counted: it does as the
lines on its standard input say, and answers each with a line.

  take KIND MIB   takes MIB MiB of one of KINDS         "took RESULT"
  give            gives back what it took last          "gave RESULT"
  free            memory that is free, and all of it    "free BYTES BYTES"
"""

import ctypes
import sys

cuda = ctypes.CDLL("libcuda.so.1")


def check(result):
    assert result == 0, result


def managed(size):
    pointer = ctypes.c_uint64()
    result = cuda.cuMemAllocManaged(ctypes.byref(pointer), ctypes.c_size_t(size), 1)
    if result == 0:
        ctypes.memset(pointer.value + size - 1, 1, 1)
    return result, lambda: cuda.cuMemFree_v2(pointer)


class ArrayDescriptor(ctypes.Structure):
    _fields_ = [("width", ctypes.c_size_t), ("height", ctypes.c_size_t), ("format", ctypes.c_int), ("channels", ctypes.c_uint)]


def array(size):
    """Of floats, a KiB a row."""
    handle, descriptor = ctypes.c_void_p(), ArrayDescriptor(256, size >> 10, 0x20, 1)
    result = cuda.cuArrayCreate_v2(ctypes.byref(handle), ctypes.byref(descriptor))
    return result, lambda: cuda.cuArrayDestroy(handle)


class PoolProperties(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("handles", ctypes.c_int), ("where", ctypes.c_int), ("device", ctypes.c_int), ("more", ctypes.c_char * 72)]


class AllocParameters(ctypes.Structure):
    _fields_ = [("pool", PoolProperties), ("access", ctypes.c_void_p), ("count", ctypes.c_size_t), ("bytes", ctypes.c_size_t), ("pointer", ctypes.c_uint64)]


ON_DEVICE = PoolProperties(1, 0, 1, 0)


def graph(size):
    """Allocates and frees in a launch: the driver keeps it until it is trimmed."""
    made, node, runnable = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    parameters = AllocParameters(ON_DEVICE, None, 0, size, 0)
    check(cuda.cuGraphCreate(ctypes.byref(made), 0))
    check(cuda.cuGraphAddMemAllocNode(ctypes.byref(node), made, None, ctypes.c_size_t(0), ctypes.byref(parameters)))
    freed = ctypes.c_void_p()
    check(cuda.cuGraphAddMemFreeNode(ctypes.byref(freed), made, ctypes.byref(node), ctypes.c_size_t(1), ctypes.c_uint64(parameters.pointer)))
    check(cuda.cuGraphInstantiateWithFlags(ctypes.byref(runnable), made, ctypes.c_ulonglong(0)))
    result = cuda.cuGraphLaunch(runnable, None)
    check(cuda.cuCtxSynchronize())
    return result, lambda: cuda.cuDeviceGraphMemTrim(0)


def pool(size):
    """That other processes may import."""
    made, pointer = ctypes.c_void_p(), ctypes.c_uint64()
    properties = PoolProperties(1, 1, 1, 0)
    check(cuda.cuMemPoolCreate(ctypes.byref(made), ctypes.byref(properties)))
    result = cuda.cuMemAllocFromPoolAsync(ctypes.byref(pointer), ctypes.c_size_t(size), made, None)
    check(cuda.cuCtxSynchronize())

    def give():
        check(cuda.cuMemFreeAsync(pointer, None))
        check(cuda.cuCtxSynchronize())
        return cuda.cuMemPoolDestroy(made)

    return result, give


def heap(size):
    """Of kernels."""
    before = ctypes.c_size_t()
    check(cuda.cuCtxGetLimit(ctypes.byref(before), 2))
    result = cuda.cuCtxSetLimit(2, ctypes.c_size_t(before.value + size))
    return result, lambda: cuda.cuCtxSetLimit(2, before)


def stack(size):
    """Of kernels: of every thread that a multiprocessor can hold, on each of them."""
    before, count, threads = ctypes.c_size_t(), ctypes.c_int(), ctypes.c_int()
    check(cuda.cuDeviceGetAttribute(ctypes.byref(count), 16, 0))
    check(cuda.cuDeviceGetAttribute(ctypes.byref(threads), 39, 0))
    check(cuda.cuCtxGetLimit(ctypes.byref(before), 0))
    result = cuda.cuCtxSetLimit(0, ctypes.c_size_t(before.value + size // (count.value * threads.value)))
    return result, lambda: cuda.cuCtxSetLimit(0, before)


KINDS = {"managed": managed, "array": array, "graph": graph, "pool": pool, "heap": heap, "stack": stack}

context = ctypes.c_void_p()
check(cuda.cuInit(0))
check(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0))
taken = []
print("ready", flush=True)
while line := sys.stdin.readline():
    command, *words = line.split()
    if command == "take":
        result, give = KINDS[words[0]](int(words[1]) << 20)
        if result == 0:
            taken.append(give)
        print("took", result, flush=True)
    elif command == "give":
        print("gave", taken.pop()(), flush=True)
    elif command == "free":
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        check(cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)))
        print("free", free.value, total.value, flush=True)
