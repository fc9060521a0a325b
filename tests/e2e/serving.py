"""`tandem serve` in end-to-end tests, and a daemon that answers as a test likes."""

import http.client
import json
import os
import queue
import socket
import threading

from harness import ANSWER, PATIENCE_S, SOCKET, TANDEM, frame, receive


class Serve:
    """A running `tandem serve` and requests to it."""

    def __init__(self, card, *flags, listen="127.0.0.1:0", **environment):
        env = {**card.env, **environment}
        self.process = card.spawn([TANDEM, "serve", "--json", "--listen", listen, *flags], env=env)
        line = self.process.stdout.readline()
        assert line, self.process.communicate(timeout=PATIENCE_S)
        self.said = json.loads(line)
        self.port = self.said["port"]

    def request(self, path, method="GET", **headers):
        """(status, headers, body) of an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, headers=named)
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return answer.status, answer.headers, body.decode()

    def get(self, path, **headers):
        """The body of a good answer, parsed where it is JSON."""
        status, sent, body = self.request(path, **headers)
        assert status == 200, (status, body)
        return json.loads(body) if sent["Content-Type"] == "application/json" else body

    def refusal(self, path, **headers):
        status, _, body = self.request(path, **headers)
        error = json.loads(body)["error"]
        assert status >= 400 and error
        return status, error

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)

    def live(self, path="/api/v1/live", **headers):
        """The events of the stream, one after the other."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        assert answer.status == 200 and answer.headers["Content-Type"] == "text/event-stream"
        try:
            while line := answer.readline():
                if line.startswith(b"data: "):
                    yield json.loads(line[6:])
        finally:
            connection.close()

    def resident_bytes(self):
        with open(f"/proc/{self.process.pid}/statm", encoding="ascii") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class FakeDaemon:
    """Answers "status" and "sessions" with what `change` makes of an answer; counts the questions."""

    def __init__(self, card, answers, change=lambda what, answer: answer):
        self.answers, self.change = answers, change
        self.questions = queue.SimpleQueue()
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(str(card.runtime / SOCKET))
        self.listener.listen()
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.answer, args=(connection,), daemon=True).start()

    def answer(self, connection):
        with connection:
            try:
                while True:
                    _, payload = receive(connection)
                    what = payload[2:].decode()
                    self.questions.put(what)
                    answer = self.change(what, json.loads(json.dumps(self.answers[what])))
                    connection.sendall(frame(ANSWER, json.dumps(answer).encode()))
            except OSError:
                return

    def close(self):
        self.listener.close()
