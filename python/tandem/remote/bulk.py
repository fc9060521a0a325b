"""The channel for the bytes of a cell's state, beside Jupyter's own.

A message is a pickled header and frames. On the same host the frames lie in memory that both
processes map (a memfd, which ends with its process); elsewhere they are parts of the message. The
header is authenticated with the key of the connection file before it is unpickled. The parts of
one ZeroMQ message come from one peer, so the frames belong to the header.

Threading: one thread. A side may write its shared memory again once the other has answered.
"""

import hashlib
import hmac
import mmap
import os
import pickle

import zmq

from .errors import WorkerLost

_SHARED_AT_LEAST = 1 << 16  # smaller payloads are part of the message
_KEPT_BYTES = 256 << 20  # the shared memory that stays between cells
_MAC_BYTES = 32


class Channel:
    """One end of a channel. `server` ends bind, and answer the peer that spoke last.

    `shared` is true where both ends are on one host and may map each other's memory.
    """

    def __init__(self, context, endpoint, key, server=False, shared=False):
        self._key = key if isinstance(key, bytes) else key.encode()
        self._server = server
        self._shared = shared
        self._arena = _Arena()
        self._maps = {}
        self._peer = None
        self.socket = context.socket(zmq.ROUTER if server else zmq.DEALER)
        self.socket.linger = 0
        self.endpoint = endpoint
        if server:
            self.endpoint = self._bind(endpoint)
        else:
            self.socket.connect(endpoint)

    def _bind(self, endpoint):
        self.socket.bind(endpoint)
        return self.socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def send(self, cell, header, frames):
        """Sends the header and frames of a cell; `frames` are flat memoryviews."""
        lengths = [frame.nbytes for frame in frames]
        where = None
        if self._shared and sum(lengths) >= _SHARED_AT_LEAST:
            where, frames = self._arena.write(frames), []
        body = pickle.dumps((cell, where, lengths, header), 5)
        parts = [self._mac(body), body, *frames]
        if self._server:
            parts.insert(0, self._peer)
        self.socket.send_multipart(parts, copy=not frames)

    def receive(self, cell, timeout):
        """Returns (header, frames) of a cell; messages of other cells are dropped.

        `timeout` is in seconds. Raises WorkerLost where nothing arrives in time.
        """
        while self.socket.poll(int(timeout * 1000)):
            parts = self.socket.recv_multipart(copy=False)
            sender = parts.pop(0).bytes if self._server else None
            if len(parts) < 2 or not self._authentic(parts[0].bytes, parts[1].buffer):
                continue
            found, where, lengths, header = pickle.loads(parts[1].buffer)
            self._peer = sender
            if found == cell:
                frames = [part.buffer for part in parts[2:]]
                return header, frames if where is None else self._read(where, lengths)
        raise WorkerLost(f"The state of the cell did not arrive within {timeout:.0f} s.")

    def _mac(self, body):
        direction = b"worker" if self._server else b"notebook"
        return hmac.digest(self._key, direction + body, hashlib.sha256)

    def _authentic(self, mac, body):
        direction = b"notebook" if self._server else b"worker"
        wanted = hmac.digest(self._key, direction + bytes(body), hashlib.sha256)
        return len(mac) == _MAC_BYTES and hmac.compare_digest(mac, wanted)

    def _read(self, where, lengths):
        """Returns views of the peer's shared memory."""
        pid, descriptor, size = where
        if self._maps.get("where") != where:
            self._maps = {"where": where, "view": _map(f"/proc/{pid}/fd/{descriptor}", size)}
        view, frames, start = self._maps["view"], [], 0
        for length in lengths:
            frames.append(view[start : start + length])
            start += length
        return frames

    def trim(self):
        """Gives shared memory beyond a fixed amount back; the peer has read it."""
        self._arena.trim()
        if self._maps and self._maps["where"][2] > _KEPT_BYTES:
            self._maps = {}

    def close(self):
        """Closes the socket and gives the shared memory back."""
        self.socket.close(0)
        self._maps = {}
        self._arena.close()


def _map(path, size):
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return memoryview(mmap.mmap(descriptor, size, prot=mmap.PROT_READ))
    finally:
        os.close(descriptor)


class _Arena:
    """Memory of this process that the peer maps."""

    def __init__(self):
        self._descriptor = None
        self._size = 0
        self._view = None

    def write(self, frames):
        """Copies frames one after the other; returns (pid, descriptor, size) for the peer."""
        total = sum(frame.nbytes for frame in frames)
        if total > self._size:
            self.close()
            self._descriptor = os.memfd_create("tandem-cell", os.MFD_CLOEXEC)
            os.ftruncate(self._descriptor, total)
            self._view = memoryview(mmap.mmap(self._descriptor, total))
            self._size = total
        start = 0
        for frame in frames:
            self._view[start : start + frame.nbytes] = frame
            start += frame.nbytes
        return os.getpid(), self._descriptor, self._size

    def trim(self):
        """Gives a large memory back."""
        if self._size > _KEPT_BYTES:
            self.close()

    def close(self):
        """Gives the memory back; the peer's map of it stays valid."""
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor, self._view, self._size = None, None, 0
