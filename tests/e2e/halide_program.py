"""Halide pipelines on the card, each compared with the same on the CPU; run by test_third_party.py.

Prints a line for each: its name and a checksum. The largest one needs 73 MiB of device memory.
"""

import os
import sys
import zlib

import halide as hl

x, y, xi, yi = (hl.Var(name) for name in ("x", "y", "xi", "yi"))
CPU = hl.get_host_target()
# It takes some processors with AVX-512 for others, with instructions that these do not have.
for feature in (name for name in dir(hl.TargetFeature) if name.startswith("AVX512")):
    CPU = CPU.without_feature(getattr(hl.TargetFeature, feature))
os.environ["HL_JIT_TARGET"] = str(CPU)  # also where no target is named
CARD = CPU.with_feature(hl.TargetFeature.CUDA).with_feature(hl.TargetFeature.CUDACapability61)


def noise(kind, sizes, limit):
    """A buffer of numbers below the limit that look random."""
    mixed = hl.Func("noise")
    place = hl.u32(x + 1) * hl.u32(747796405) + hl.u32(y if len(sizes) > 1 else 0) * hl.u32(1664525)
    place = (place ^ (place >> 13)) * hl.u32(277803737)
    mixed[(x, y)[: len(sizes)]] = hl.cast(kind, ((place >> 7) & 0xFFFFF) % limit)
    buffer = mixed.realize(sizes)
    buffer.set_host_dirty()
    return buffer


def blur(card):
    """Shared memory: the rows of a tile that the columns need."""
    picture = hl.BoundaryConditions.repeat_edge(noise(hl.UInt(8), [301, 200], 256))
    rows, both = hl.Func("rows"), hl.Func("both")
    rows[x, y] = hl.u8((hl.u16(picture[x - 1, y]) + picture[x, y] + picture[x + 1, y]) / 3)
    both[x, y] = hl.u8((hl.u16(rows[x, y - 1]) + rows[x, y] + rows[x, y + 1]) / 3)
    if card:
        both.gpu_tile(x, y, xi, yi, 16, 8)
        rows.compute_at(both, x).gpu_threads(x, y)
    return both, [301, 200]


def product(card):
    """A product of matrices, of numbers so small that no sum is rounded."""
    n = 96
    left, right = noise(hl.Float(32), [n, n], 100), noise(hl.Float(32), [n, n], 100)
    k = hl.RDom([(0, n)])
    sums, result = hl.Func("sums"), hl.Func("result")
    sums[x, y] = hl.f32(0)
    sums[x, y] += left[k, y] * right[x, k]
    result[x, y] = sums[x, y]
    if card:
        result.gpu_tile(x, y, xi, yi, 16, 16)
        sums.compute_at(result, x).gpu_threads(x, y)
        sums.update().gpu_threads(x, y)
    return result, [n, n]


def histogram(card):
    """Atomic additions from all blocks."""
    picture = noise(hl.UInt(8), [512, 128], 256)
    bins, r = hl.Func("bins"), hl.RDom([(0, 512), (0, 128)])
    bins[x] = hl.u32(0)
    bins[hl.i32(picture[r.x, r.y])] += hl.u32(1)
    if card:
        outer, inner = hl.RVar("outer"), hl.RVar("inner")
        bins.compute_root().gpu_tile(x, xi, 64)
        bins.update().atomic().split(r.x, outer, inner, 128).reorder(inner, outer, r.y)
        bins.update().gpu_blocks(outer, r.y).gpu_threads(inner)
    return bins, [256]


def sort(card):
    """A bitonic sort: a kernel for each of its 21 stages."""
    n = 64
    stage = hl.Func("numbers")
    stage[x] = noise(hl.Int(32), [n], 100000)[x]
    pairs = [(1 << k, 1 << j) for k in range(1, 7) for j in reversed(range(k))]
    for run, gap in pairs:
        stage.compute_root()
        if card:
            stage.gpu_tile(x, xi, 32)
        other = stage[hl.clamp(x ^ gap, 0, n - 1)]
        rising = ((x & run) == 0) == ((x & gap) == 0)
        swapped = hl.Func("swapped")
        swapped[x] = hl.select(rising, hl.min(stage[x], other), hl.max(stage[x], other))
        stage = swapped
    if card:
        stage.gpu_tile(x, xi, 32)
    return stage, [n]


def large(card):
    """Three stages, each in 24 MiB of its own."""
    size = [4096, 1536]
    first, second, third = hl.Func("first"), hl.Func("second"), hl.Func("third")
    first[x, y] = x * 7919 ^ y * 104729
    second[x, y] = first[x, y] + first[x + 1, y + 1]
    third[x, y] = second[x, y] ^ (first[x + 2, y] / 3)
    for stage in (first, second, third):
        stage.compute_root()
        if card:
            stage.gpu_tile(x, y, xi, yi, 64, 4)
    return third, size


def output(pipeline, target):
    function, sizes = pipeline
    buffer = function.realize(sizes, target)
    buffer.copy_to_host()
    return memoryview(buffer).tobytes()


def main():
    for pipeline in (blur, product, histogram, sort, large):
        if pipeline is large and "wait" in sys.argv[1:]:
            sys.stdin.readline()  # until all programs are here
        expected, found = (output(pipeline(target is CARD), target) for target in (CPU, CARD))
        if expected != found:
            sys.exit(f"{pipeline.__name__}: the card and the CPU differ")
        print(pipeline.__name__, zlib.crc32(found))


main()
