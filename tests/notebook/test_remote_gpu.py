"""A worker under `tandem run` uses the shared card; the notebook never does."""

import pytest

import harness
from remote_fixtures import RemoteShell

np = pytest.importorskip("numpy")

START = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
def check(status): assert status == 0, status
context, pointer, size = ctypes.c_void_p(), ctypes.c_uint64(), data.nbytes
check(cuda.cuInit(0))
check(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0))
check(cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size)))
check(cuda.cuMemcpyHtoD_v2(pointer, data.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(size)))
address = pointer.value
"""
BACK = """
import ctypes, numpy as np
cuda = ctypes.CDLL("libcuda.so.1")
back = np.empty(size, 'u1')
target = back.ctypes.data_as(ctypes.c_void_p)
status = cuda.cuMemcpyDtoH_v2(target, ctypes.c_uint64(address), ctypes.c_size_t(size))
"""


@pytest.fixture
def found_card(card, monkeypatch):
    """A software GPU with its daemon, which `tandem run` of this process finds."""
    for name, value in card.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TANDEM_COMMAND", str(harness.TANDEM))
    return card


def test_a_cells_cuda_context_lives_on_the_worker(found_card):
    notebook = RemoteShell(plain=False)
    try:
        notebook.local("import numpy as np\ndata = np.arange(1 << 20, dtype='u1')")
        assert found_card.sessions() == []
        kept = notebook.ok(START).kept
        assert {"cuda", "context"} <= set(kept)
        assert len(found_card.sessions()) == 1
        notebook.ok(BACK)
        assert notebook.space["status"] == 0
        assert np.array_equal(notebook.space["back"], notebook.space["data"])
    finally:
        notebook.close()
