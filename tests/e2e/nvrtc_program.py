"""Compiles a kernel by NVRTC and runs it. The argument is the path of libnvrtc."""

import ctypes
import sys

SOURCE = b"""extern "C" __global__ void triple(int* words) { words[threadIdx.x] = 3 * threadIdx.x; }"""
OPTIONS = (ctypes.c_char_p * 1)(b"--gpu-architecture=compute_80")


def check(result):
    assert result == 0, result


compiler = ctypes.CDLL(sys.argv[1])
program, size = ctypes.c_void_p(), ctypes.c_size_t()
check(compiler.nvrtcCreateProgram(ctypes.byref(program), SOURCE, b"triple.cu", 0, None, None))
check(compiler.nvrtcCompileProgram(program, len(OPTIONS), OPTIONS))
check(compiler.nvrtcGetPTXSize(program, ctypes.byref(size)))
ptx = ctypes.create_string_buffer(size.value)
check(compiler.nvrtcGetPTX(program, ptx))

cuda = ctypes.CDLL("libcuda.so.1")
context, module, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
words = ctypes.c_uint64()
check(cuda.cuInit(0))
check(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0))
check(cuda.cuModuleLoadData(ctypes.byref(module), ptx))
check(cuda.cuModuleGetFunction(ctypes.byref(function), module, b"triple"))
check(cuda.cuMemAlloc_v2(ctypes.byref(words), ctypes.c_size_t(4 * 32)))
parameters = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(words), ctypes.c_void_p))
check(cuda.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, None, parameters, None))
host = (ctypes.c_int * 32)()
check(cuda.cuMemcpyDtoH_v2(host, words, ctypes.c_size_t(4 * 32)))
print(list(host) == [3 * i for i in range(32)])
