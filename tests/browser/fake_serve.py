"""A server with the interface of `tandem serve` (docs/serve.md) and numbers of its own.

For what a real daemon does not give on demand: 40 sessions, weeks of history, names that attack the page,
a server that goes away. By hand: fake_serve.py WEB_FOLDER [PORT] [SESSIONS]
"""

import json
import sys
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import fake_numbers

TYPES = {".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8",
         ".css": "text/css; charset=utf-8", ".txt": "text/plain; charset=utf-8"}  # fmt: skip
POLICY = (
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; object-src "
    "'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
PARAMETERS = {
    "gpus": set(),
    "sessions": set(),
    "live": {"every"},
    "report": {"since", "until", "by", "user", "format"},
    "history": {"since", "until", "by", "points"},
    "plan": {"users", "gpus", "burst", "edit", "pause", "away", "stay", "bound", "memory", "card", "bus"},
}


class FakeServe:
    """`names`: of the first sessions and runs. `daemon`: whether there is one. `errors`: by part of the interface."""

    def __init__(self, web, sessions=40, names=(), token=None, daemon=True, errors=(), port=0):
        self.web, self.sessions, self.names, self.token, self.daemon = Path(web), sessions, names, token, daemon
        self.port, self.errors = port, dict(errors)
        self.asked = []  # paths with their queries
        self._server = None
        self.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def start(self):
        fake = self

        class Bound(_Handler):
            serve = fake

        ThreadingHTTPServer.allow_reuse_address = True
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Bound)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self.port = self._server.server_address[1]
        self.ending = threading.Event()
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def stop(self):
        """Also ends the streams, as a server that dies does."""
        self.ending.set()
        self._server.shutdown()
        self._server.server_close()

    def live(self):
        now = time.time()
        if self.daemon:
            return fake_numbers.live(self.sessions, now, self.names)
        why = "no daemon answers; `tandem run` starts one"
        return {"at": fake_numbers.text_of(now), "pid": None, "gpus": [], "sessions": [], "runs": [], "error": why}


class _Handler(BaseHTTPRequestHandler):
    serve = None  # a FakeServe

    def log_message(self, *_):
        pass

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        if not url.path.startswith("/api/v1/"):
            return self._file(url.path)
        self.serve.asked.append(self.path)
        wanted = f"Bearer {self.serve.token}"
        if self.serve.token and self.headers.get("Authorization") != wanted:
            return self._json({"error": "a token is needed"}, 401)
        name = url.path.removeprefix("/api/v1/")
        if name not in PARAMETERS:
            return self._json({"error": f"there is no {url.path}"}, 404)
        if name in self.serve.errors:
            return self._json({"error": self.serve.errors[name]}, 500)
        unknown = set(query) - PARAMETERS[name]
        if unknown:
            return self._json({"error": f"there is no parameter {min(unknown)}"}, 400)
        try:
            return getattr(self, f"_{name}")(query)
        except (ValueError, KeyError) as error:
            return self._json({"error": f"{error}"}, 400)

    def _send(self, body, kind, status=200, **headers):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Content-Security-Policy", POLICY)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def _json(self, value, status=200):
        self._send(json.dumps(value).encode(), "application/json", status)

    def _file(self, path):
        file = (self.serve.web / ("index.html" if path == "/" else path.lstrip("/"))).resolve()
        if self.serve.web.resolve() not in file.parents or not file.is_file():
            return self._json({"error": "not found"}, 404)
        return self._send(file.read_bytes(), TYPES[file.suffix])

    def _gpus(self, _):
        live = self.serve.live()
        self._json({"at": live["at"], "gpus": live["gpus"]})

    def _sessions(self, _):
        live = self.serve.live()
        self._json({key: live[key] for key in ("at", "sessions", "runs")})

    def _live(self, query):
        every = float(query.get("every", 1))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        ending = self.serve.ending
        try:
            while not ending.is_set():
                self.wfile.write(f"event: now\ndata: {json.dumps(self.serve.live())}\n\n".encode())
                ending.wait(every)
        except OSError:
            pass  # the page is gone

    def _interval(self, query, default):
        now = time.time()
        since = fake_numbers.time_of(query.get("since", default), now)
        return since, fake_numbers.time_of(query.get("until", "now"), now), now

    def _history(self, query):
        since, until, now = self._interval(query, "1h")
        points = int(query.get("points", 360))
        if not 1 <= points <= 720:
            raise ValueError("points is from 1 to 720")
        self._json(fake_numbers.history(since, until, query.get("by", "gpu"), points, now))

    def _report(self, query):
        since, until, _ = self._interval(query, "7d")
        by = query.get("by", "user")
        report = fake_numbers.report(since, until, by, self.serve.names)
        if query.get("format") != "csv":
            return self._json(report)
        lines = [",".join((by, *fake_numbers.AMOUNTS))]
        for row in report["rows"]:
            key = '"' + str(row[by] or "").replace('"', '""') + '"'
            lines.append(",".join([key, *(str(row[each]) for each in fake_numbers.AMOUNTS)]))
        body = "\n".join(lines) + "\n"
        return self._send(body.encode(), "text/csv", Content_Disposition='attachment; filename="report.csv"')

    def _plan(self, query):
        seconds = fake_numbers.seconds_of
        burst, bound = seconds(query.get("burst", "30s")), seconds(query.get("bound", "2m"))
        edit = seconds(query.get("edit", query.get("pause", "5m")))
        pause = edit + edit / seconds(query.get("stay", "2h")) * seconds(query.get("away", "0"))
        self._json(fake_numbers.plan(int(query["users"]), burst, pause, int(query.get("gpus", 1)), bound))


def main():
    web, port, sessions = (sys.argv[1:] + ["9871", "40"][len(sys.argv) - 2 :])[:3]
    fake = FakeServe(web, sessions=int(sessions), port=int(port))
    print(fake.url, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
