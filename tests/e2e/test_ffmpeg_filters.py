"""All CUDA filters of Debian's ffmpeg: against its own filters for the CPU, and always the same.

The kernels of scale_cuda store a value above the largest as it is, cut to the width of a sample, so
that an overshoot of bicubic or lanczos wraps around on any card. The pictures to compare therefore
keep away from the ends of the range.
"""

import re

import pytest

from harness import PATIENCE_S, finish

CARD = ["ffmpeg", "-nostdin", "-init_hw_device", "cuda=cu:0", "-filter_hw_device", "cu"]
CALM = "lutyuv=y=val/2+64:u=val/2+64:v=val/2+64"


def inputs(*sources):
    """Options for lavfi inputs, each a few frames long."""
    return [word for source in sources for word in ("-f", "lavfi", "-i", f"{source}:r=25:d=0.24")]


def md5(graph, *sources):
    return [*CARD, "-v", "error", *inputs(*sources), "-filter_complex", graph, "-f", "md5", "-"]


def psnr(card, graph, *sources):
    """The mean PSNR that a graph's last filter, psnr, reports; infinite where all is the same."""
    process = card.bare([*CARD, "-v", "info", *inputs(*sources), "-filter_complex", graph, "-f", "null", "-"])
    _, log = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, log
    return float(re.search(r"PSNR .*average:(\S+)", log)[1])


def down(form):
    return f"hwdownload,format={form}"


UP = "hwupload_cuda"
# No multiples of a block of threads, and few pixels: the software GPU computes each.
SOURCE = "testsrc2=s=160x120"
OVERLAY = "testsrc=s=48x32"
OVERLAID = "[0]format=yuv420p,hwupload_cuda[m];[1]format={form},hwupload_cuda[o];[m][o]overlay_cuda=x=32:y=16"

GRAPHS = {
    "hwupload": (f"format=nv12,{UP},{down('nv12')}", SOURCE),
    "overlay": (f"{OVERLAID.format(form='yuv420p')},{down('yuv420p')}", SOURCE, OVERLAY),
    "overlay-alpha": (f"{OVERLAID.format(form='yuva420p')},{down('yuv420p')}", SOURCE, OVERLAY),
    "scale-nearest": (f"format=yuv420p,{UP},scale_cuda=240:160:interp_algo=nearest,{down('yuv420p')}", SOURCE),
    "scale-bilinear": (f"format=nv12,{UP},scale_cuda=100:76:interp_algo=bilinear,{down('nv12')}", SOURCE),
    "scale-bicubic": (f"format=p010,{UP},scale_cuda=240:160:interp_algo=bicubic,{down('p010')}", SOURCE),
    "scale-lanczos": (f"format=yuv444p,{UP},scale_cuda=240:160:interp_algo=lanczos,{down('yuv444p')}", SOURCE),
    "scale-bilinear-420": (f"format=yuv420p,{UP},scale_cuda=100:76:interp_algo=bilinear,{down('yuv420p')}", SOURCE),
    "scale-bicubic-420": (f"format=yuv420p,{UP},scale_cuda=240:160:interp_algo=bicubic,{down('yuv420p')}", SOURCE),
    "scale-lanczos-420": (f"format=yuv420p,{UP},scale_cuda=240:160:interp_algo=lanczos,{down('yuv420p')}", SOURCE),
    "scale-format": (f"format=yuv420p,{UP},scale_cuda=240:160:format=nv12,{down('nv12')}", SOURCE),
    "yadif": (f"format=yuv420p,{UP},yadif_cuda=mode=send_field,{down('yuv420p')}", SOURCE),
    "chromakey": (f"format=yuv420p,{UP},chromakey_cuda=green:0.3:0.1,{down('yuva420p')}", SOURCE),
    "thumbnail": (f"format=nv12,{UP},thumbnail_cuda=3,{down('nv12')}", SOURCE),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_output_is_always_the_same(card, name):
    argv = md5(*GRAPHS[name])
    expected = finish(card.bare(argv))
    assert expected.startswith("MD5=")
    assert finish(card.bare(argv)) == expected
    assert finish(card.shared(argv)) == expected
    for isa in ("avx2", "baseline"):
        card.env["TANDEM_SOFT_ISA"] = isa
        assert finish(card.bare(argv)) == expected
    assert finish(card.shared(argv)) == expected


FORMATS = ["yuv420p", "nv12", "yuv444p", "p010", "p016", "yuv444p16"]

# What each interpolation is called by ffmpeg's own scaler, when it does the same thing.
SCALERS = {
    "nearest": "neighbor",
    "bilinear": "bilinear",
    "bicubic": "bicubic+accurate_rnd:param0=0:param1=0",
    "lanczos": "lanczos+accurate_rnd:param0=2",
}


def scaled(form, algorithm, size):
    return (
        f"{CALM},format={form},split[a][b];"
        f"[a]{UP},scale_cuda={size}:interp_algo={algorithm},{down(form)}[gpu];"
        f"[b]scale={size}:flags={SCALERS[algorithm]},format={form}[cpu];[gpu][cpu]psnr"
    )


@pytest.mark.parametrize("algorithm", SCALERS)
@pytest.mark.parametrize("form", FORMATS)
def test_scale_agrees_with_the_cpu(card, form, algorithm):
    graph = f"[0]format=yuv444p,{scaled(form, algorithm, '240:160')}"
    assert psnr(card, graph, SOURCE) >= 50  # another algorithm gives 48 or less


@pytest.mark.parametrize("form", ["yuv420p", "yuva420p"])
def test_overlay_agrees_with_the_cpu(card, form):
    graph = (
        "[0]format=yuv420p,split[a][b];[1]format=yuva420p,"
        + ("colorchannelmixer=aa=0.6," if form == "yuva420p" else "")
        + f"format={form},split[c][d];"
        f"[a]{UP}[m];[c]{UP}[o];[m][o]overlay_cuda=x=32:y=16,{down('yuv420p')}[gpu];"
        "[b][d]overlay=x=32:y=16:format=yuv420,format=yuv420p[cpu];[gpu][cpu]psnr"
    )
    assert psnr(card, graph, SOURCE, OVERLAY) >= 40


def test_yadif_agrees_with_the_cpu(card):
    graph = (
        f"[0]format=yuv420p,split[a][b];[a]{UP},yadif_cuda,{down('yuv420p')}[gpu];"
        "[b]yadif,format=yuv420p[cpu];[gpu][cpu]psnr"
    )
    assert psnr(card, graph, SOURCE) >= 40


def test_thumbnail_picks_the_frame_that_the_cpu_picks(card):
    graph = (
        f"[0]format=nv12,split[a][b];[a]{UP},thumbnail_cuda=3,{down('nv12')},format=yuv420p[gpu];"
        "[b]format=yuv420p,thumbnail=3[cpu];[gpu][cpu]psnr"
    )
    assert psnr(card, graph, SOURCE) >= 40
