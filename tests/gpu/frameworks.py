#!/usr/bin/env python3
"""One framework's program for check.py: computes on the GPU and prints digests of the results as JSON.

    python3 frameworks.py torch|cupy|numba|triton|jax [--ballast GIB] [--steps N] [--every N --pause SECONDS]

--ballast: PyTorch also holds this much, changes it in each step and checks it.
--pause: PyTorch does nothing for so long after each N steps.
"""

import argparse
import hashlib
import json
import os
import sys
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def digest(array):
    import numpy

    return hashlib.sha256(numpy.ascontiguousarray(array).tobytes()).hexdigest()[:16]


def torch_program(args):
    import torch

    torch.use_deterministic_algorithms(True)
    for name in ("flash", "mem_efficient", "cudnn"):  # these add in any order
        getattr(torch.backends.cuda, f"enable_{name}_sdp")(False)
    torch.manual_seed(7)
    found, times = {}, {}
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 32, 3, padding=1), torch.nn.BatchNorm2d(32), torch.nn.ReLU(),
        torch.nn.Conv2d(32, 64, 3, padding=1, stride=2), torch.nn.ReLU(), torch.nn.Flatten(),
        torch.nn.Linear(64 * 16 * 16, 256), torch.nn.GELU(), torch.nn.Linear(256, 10),
    ).cuda()  # fmt: skip
    layer = torch.nn.TransformerEncoderLayer(256, 8, 512, dropout=0.1, batch_first=True).cuda()
    optimiser = torch.optim.AdamW([*model.parameters(), *layer.parameters()], lr=1e-3)
    ballast, pieces = [], 0
    if args.ballast:
        piece = 256 << 20
        pieces = int(args.ballast * 2**30) // piece
        begin = time.monotonic()
        for number in range(pieces):
            ballast.append(torch.full((piece // 4,), number, dtype=torch.int32, device="cuda"))
        torch.cuda.synchronize()
        times["ballast_s"] = round(time.monotonic() - begin, 3)
    side = torch.cuda.Stream()
    host = torch.empty(64, 3, 32, 32).pin_memory()
    print("ready", flush=True)
    begin = time.monotonic()
    for step in range(args.steps):
        host.copy_(torch.randn(64, 3, 32, 32))
        with torch.cuda.stream(side):
            images = host.to("cuda", non_blocking=True)
        torch.cuda.current_stream().wait_stream(side)
        labels = torch.arange(64, device="cuda") % 10
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        words = torch.randn(8, 64, 256, device="cuda")
        loss = loss + (layer(words) - words).pow(2).mean()
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        for piece in ballast:
            piece.add_(1)
        torch.cuda.synchronize()
        if args.pause and (step + 1) % args.every == 0:
            time.sleep(args.pause)
    times["steps_s"] = round(time.monotonic() - begin, 3)
    found["weights"] = digest(torch.cat([p.detach().flatten() for p in model.parameters()]).cpu().numpy())
    found["layer"] = digest(torch.cat([p.detach().flatten() for p in layer.parameters()]).cpu().numpy())
    found["loss"] = digest(loss.detach().cpu().numpy())
    wrong = sum(int((piece != number + args.steps).sum().item()) for number, piece in enumerate(ballast))
    found["ballast"] = f"{wrong} wrong"
    del ballast
    # A CUDA graph, bf16 matrix products, a sort, an FFT, and memory given back to the driver.
    static = torch.randn(1024, 1024, device="cuda", dtype=torch.bfloat16)
    weight = torch.randn(1024, 1024, device="cuda", dtype=torch.bfloat16)
    warm = torch.cuda.Stream()
    warm.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(warm):
        for _ in range(3):
            static @ weight
    torch.cuda.current_stream().wait_stream(warm)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        product = (static @ weight).relu()
    for _ in range(50):
        static.copy_(product / product.float().norm().to(torch.bfloat16) * 32)
        graph.replay()
    found["graph"] = digest(product.float().cpu().numpy())
    long = torch.randn(1 << 22, device="cuda")
    found["sort"] = digest(torch.sort(long).values.cpu().numpy())
    found["fft"] = digest(torch.fft.rfft(long).abs().cpu().numpy())
    torch.cuda.empty_cache()
    found["after_empty"] = digest(torch.arange(1 << 20, device="cuda").cumsum(0).cpu().numpy())
    times["ballast_gib"] = pieces / 4
    times["max_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 2)
    return found, times


def cupy_program(args):
    import cupy
    import numpy

    found = {}
    generator = numpy.random.default_rng(3)
    a = cupy.asarray(generator.standard_normal((1500, 1500), dtype=numpy.float32))
    for _ in range(args.steps):
        a = a @ a
        a /= cupy.abs(a).max()
    found["matmul"] = digest(cupy.asnumpy(a))
    kernel = cupy.RawKernel(
        'extern "C" __global__ void f(float* x, int n) {'
        " int i = blockDim.x * blockIdx.x + threadIdx.x; if (i < n) x[i] = x[i] * 1.5f + i; }", "f")  # fmt: skip
    x = cupy.arange(1 << 20, dtype=cupy.float32)
    for _ in range(args.steps):
        kernel((4096,), (256,), (x, numpy.int32(1 << 20)))
    found["raw_kernel"] = digest(cupy.asnumpy(x))
    found["sort"] = digest(cupy.asnumpy(cupy.sort(cupy.asarray(generator.random(1 << 20)))))
    found["fft"] = digest(cupy.asnumpy(cupy.fft.fft(x)))
    cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
    y = sum(cupy.full(1 << 20, i, dtype=cupy.int64) for i in range(20))
    found["async_pool"] = digest(cupy.asnumpy(y))
    return found, {}


def numba_program(args):
    import numpy
    from numba import cuda

    @cuda.jit
    def step(x, total):
        i = cuda.grid(1)
        if i < x.size:
            x[i] = x[i] * 3 + 1
            cuda.atomic.add(total, 0, x[i] & 255)

    x = cuda.to_device(numpy.arange(1 << 20, dtype=numpy.int64))
    total = cuda.to_device(numpy.zeros(1, dtype=numpy.int64))
    for _ in range(args.steps):
        step[4096, 256](x, total)
    cuda.synchronize()
    return {"x": digest(x.copy_to_host()), "total": int(total.copy_to_host()[0])}, {}


def triton_program(args):
    import torch
    import triton
    import triton.language as tl

    @triton.jit
    def scaled_sum(x, y, out, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = at < n
        tl.store(out + at, tl.load(x + at, mask=mask) * 2 + tl.load(y + at, mask=mask), mask=mask)

    torch.manual_seed(1)
    x, y = torch.randn(1 << 20, device="cuda"), torch.randn(1 << 20, device="cuda")
    for _ in range(args.steps):
        out = torch.empty_like(x)
        scaled_sum[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), BLOCK=1024)
        x, y = y, out / out.abs().max()
    return {"out": digest(out.cpu().numpy())}, {}


def jax_program(args):
    # Else XLA chooses kernels by measured time, and sums differ from run to run.
    os.environ.setdefault("XLA_FLAGS", "--xla_gpu_autotune_level=0 --xla_gpu_deterministic_ops=true")
    import jax
    import jax.numpy as jnp

    @jax.jit
    def step(x, _):
        x = jnp.tanh(x @ x / 30)
        return x, x.sum()

    x = jax.random.normal(jax.random.key(5), (1024, 1024))
    x, sums = jax.lax.scan(step, x, None, length=args.steps)
    return {"x": digest(jax.device_get(x)), "sums": digest(jax.device_get(sums))}, {}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", choices=("torch", "cupy", "numba", "triton", "jax"))
    parser.add_argument("--ballast", type=float, default=0)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--pause", type=float, default=0)
    args = parser.parse_args()
    begin = time.monotonic()
    found, times = globals()[f"{args.program}_program"](args)
    times["all_s"] = round(time.monotonic() - begin, 3)
    print(json.dumps({"digests": found, "times": times}), flush=True)


if __name__ == "__main__":
    sys.exit(main())
