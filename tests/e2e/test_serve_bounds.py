"""`tandem serve` under clients that send garbage, do not finish, do not read or are too many."""

import os
import random
import socket

from harness import MIB, wait_until
from serving import Serve

SEED = int(os.environ.get("TANDEM_SEED", random.SystemRandom().randrange(1 << 32)))
MOST_CONNECTIONS = 64  # src/serve/server.h
MOST_STREAMS = 32  # src/serve/site.h
ROOM = 96 * MIB  # that the process may grow by, with 64 threads


def send(connection, data):
    """Sends what the server takes; it may end the connection at any byte."""
    try:
        connection.sendall(data)
    except OSError:
        pass


def finish_sending(connection):
    try:
        connection.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def drain(connection):
    """All that comes until the end."""
    received = b""
    try:
        while piece := connection.recv(65536):
            received += piece
    except OSError:
        pass
    return received


def garbage(chance):
    """One request's worth of it."""
    host = b"Host: localhost\r\n"
    kind = chance.randrange(9)
    if kind == 0:
        return chance.randbytes(chance.randrange(1, 5000))
    if kind == 1:
        return b"GET /" + chance.randbytes(chance.randrange(1, 200)) + b" HTTP/1.1\r\n" + host + b"\r\n"
    if kind == 2:
        return b"GET /metrics HTTP/1.1\r\n" + host + b"X: " + b"a" * chance.randrange(1, 100000) + b"\r\n\r\n"
    if kind == 3:
        return b"GET /metrics HTTP/1.1\r\n" + host + b"A: b\r\n" * chance.randrange(1, 5000) + b"\r\n"
    if kind == 4:
        return b"GET /" + b"a" * chance.randrange(1, 50000) + b" HTTP/1.1\r\n" + host + b"\r\n"
    if kind == 5:
        ranges = b",".join(b"0-%d" % i for i in range(chance.randrange(1, 2000)))
        return b"GET /metrics HTTP/1.1\r\n" + host + b"Range: bytes=" + ranges + b"\r\n\r\n"
    if kind == 6:
        return b"POST /api/v1/plan HTTP/1.1\r\n" + host + b"Content-Length: 99999999\r\n\r\n" + b"x" * 5000
    if kind == 7:
        query = b"&".join(b"%%%02x=%s" % (chance.randrange(256), b"1" * chance.randrange(300)) for _ in range(20))
        path = chance.choice([b"/api/v1/plan", b"/api/v1/report", b"/api/v1/live", b"/metrics"])
        return b"GET " + path + b"?" + query + b" HTTP/1.1\r\n" + host + b"\r\n"
    whole = bytearray(b"GET /api/v1/sessions HTTP/1.1\r\n" + host + b"Accept: */*\r\n\r\n")
    for _ in range(chance.randrange(1, 4)):
        whole[chance.randrange(len(whole))] = chance.randrange(256)
    return bytes(whole[: chance.randrange(1, len(whole) + 1)])


def is_well(serve, before):
    wait_until(lambda: serve.request("/metrics")[0] == 200, serve.process, "metrics are answered")
    assert serve.resident_bytes() < before + ROOM


def test_garbage_hurts_nothing(card):
    print(f"TANDEM_SEED={SEED}")
    chance = random.Random(SEED)
    serve = Serve(card)
    serve.get("/metrics")
    before = serve.resident_bytes()
    for _ in range(2000):
        with serve.connect() as connection:
            for _ in range(chance.randrange(1, 4)):
                send(connection, garbage(chance))
            if chance.randrange(4) == 0:
                finish_sending(connection)
                answer = drain(connection)
                assert not answer or answer.startswith(b"HTTP/1.1 "), answer[:100]
    is_well(serve, before)


def test_an_endless_head_ends(card):
    serve = Serve(card)
    before = serve.resident_bytes()
    for beginning, piece in ((b"", b"a" * 65536), (b"GET / HTTP/1.1\r\n", b"A: b\r\n" * 8192)):
        with serve.connect() as connection:
            connection.sendall(beginning)
            sent = 0
            try:
                while True:
                    sent += connection.send(piece)
                    assert sent < 64 * MIB
            except OSError:
                pass  # it is closed
    is_well(serve, before)


def test_refusals_are_answered(card):
    serve = Serve(card)
    host = b"Host: localhost\r\n"
    for request, status in (
        (b"GET / HTTP/1.1\r\n" + host + b"X: " + b"a" * 20000 + b"\r\n\r\n", 431),
        (b"GET /" + b"a" * 5000 + b" HTTP/1.1\r\n" + host + b"\r\n", 414),
        (b"GET / HTTP/1.1\r\n" + host + b"Content-Length: 5\r\n\r\nhello", 413),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"nonsense\r\n\r\n", 400),
    ):
        with serve.connect() as connection:
            connection.sendall(request)
            assert drain(connection).startswith(b"HTTP/1.1 %d " % status), request[:40]


def test_thousands_of_connections(card):
    serve = Serve(card)
    before = serve.resident_bytes()
    refused = 0
    for _ in range(15):
        many = []
        for _ in range(200):
            connection = serve.connect()
            connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: ")  # and no more
            many.append(connection)
        refused += drain(many[-1]).startswith(b"HTTP/1.1 503")
        for connection in many:
            connection.close()
    assert refused > 0
    is_well(serve, before)


def test_a_client_that_does_not_finish_is_dropped(card):
    serve = Serve(card)
    halves = [serve.connect() for _ in range(MOST_CONNECTIONS)]
    for connection in halves:
        connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: ")
    for connection in halves:
        assert drain(connection) == b""  # within some seconds
    assert serve.request("/metrics")[0] == 200


def test_a_client_that_does_not_read_is_dropped(card):
    serve = Serve(card)
    request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", serve.port))
        slow.settimeout(300)
        try:
            while True:  # ends when the server has given up: answers no longer fit
                slow.sendall(request * 100)
        except OSError as error:
            assert not isinstance(error, TimeoutError)
    assert serve.request("/metrics")[0] == 200


def test_streams_leave_room_for_others(card):
    serve = Serve(card)
    streams = [serve.live() for _ in range(MOST_STREAMS)]
    for stream in streams:
        next(stream)
    status, error = serve.refusal("/api/v1/live")
    assert status == 503 and "clients of /api/v1/live" in error
    assert serve.request("/metrics")[0] == 200
    streams[0].close()
    wait_until(lambda: serve_again(serve), serve.process, "the place is free again")


def serve_again(serve):
    with serve.connect() as connection:
        connection.sendall(b"GET /api/v1/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return connection.recv(100).startswith(b"HTTP/1.1 200")
