"""The channel for bulk bytes: both ways of transport, and strangers."""

import pickle

import pytest
import zmq

import remote_fixtures  # noqa: F401  puts the package on the path
from tandem.remote.bulk import Channel
from tandem.remote.errors import WorkerLost


@pytest.fixture(params=[True, False], ids=["shared memory", "socket"])
def ends(request):
    context = zmq.Context()
    worker = Channel(context, "tcp://127.0.0.1:*", b"key", server=True, shared=request.param)
    notebook = Channel(context, worker.endpoint, b"key", shared=request.param)
    yield notebook, worker
    notebook.close()
    worker.close()
    context.destroy(0)


def exchange(sender, receiver, cell, sizes):
    frames = [memoryview(bytes([i + 1]) * size) for i, size in enumerate(sizes)]
    sender.send(cell, {"cell": cell}, frames)
    header, got = receiver.receive(cell, 10)
    assert header == {"cell": cell}
    assert [bytes(frame) for frame in got] == [bytes(frame) for frame in frames]


def test_messages_of_all_sizes_in_both_directions(ends):
    notebook, worker = ends
    for cell, sizes in enumerate([[], [3, 0, 5], [1 << 20, 1, 2 << 20], [100], [5 << 20], [70000]]):
        exchange(notebook, worker, cell, sizes)
        exchange(worker, notebook, cell, sizes[::-1])
        notebook.trim(), worker.trim()


def test_messages_of_earlier_cells_are_dropped(ends):
    notebook, worker = ends
    notebook.send(1, "old", [memoryview(b"x" * 100000)])
    notebook.send(2, "new", [memoryview(b"y" * 100)])
    header, frames = worker.receive(2, 10)
    assert header == "new" and bytes(frames[0]) == b"y" * 100


def test_a_message_without_the_key_is_never_unpickled(ends):
    notebook, worker = ends

    class Trap:
        def __reduce__(self):
            return pytest.fail, ("a stranger's pickle was loaded",)

    stranger = Channel(zmq.Context.instance(), worker.endpoint, b"other key")
    stranger.send(1, Trap(), [])
    raw = zmq.Context.instance().socket(zmq.DEALER)
    raw.linger = 0
    raw.connect(worker.endpoint)
    raw.send_multipart([b"0" * 32, pickle.dumps(Trap())])
    raw.send_multipart([b""])
    with pytest.raises(WorkerLost):
        worker.receive(1, 0.3)
    exchange(notebook, worker, 1, [10])
    exchange(worker, notebook, 1, [10])
    assert not stranger.socket.poll(0)
    stranger.close()
    raw.close()


def test_a_message_does_not_count_in_the_other_direction(ends):
    """A reflected message of the worker is not one of the notebook."""
    notebook, worker = ends
    exchange(notebook, worker, 1, [10])
    worker.send(2, "from the worker", [])
    parts = notebook.socket.recv_multipart()
    notebook.socket.send_multipart(parts)
    with pytest.raises(WorkerLost):
        worker.receive(2, 0.3)
