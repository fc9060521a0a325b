"""`tandem serve`: what programs and browsers get of GPUs and sessions, and who gets nothing."""

import csv
import io
import json
import os
import signal
import stat

import pytest

from harness import PATIENCE_S, TANDEM, finish, train, wait_until
from serving import FakeDaemon, Serve


@pytest.fixture
def scene(make_card):
    """Two programs that take turns."""
    card = make_card()
    card.start_daemon()
    card.shared(train("160M", 100000), "--name", "film")
    waiter = card.shared(train("160M", 100000), "--name", "mnist")
    wait_until(lambda: len(card.sessions()) == 2, waiter, "both are there")
    return card


@pytest.fixture
def fake(make_card):
    """A fake daemon with the answers of a real one: session 1 is film, of user 1, and 2 mnist, of this user."""
    card = make_card()
    card.start_daemon()
    films = [card.shared(train("60M", 100000), "--name", name) for name in ("film", "mnist")]
    wait_until(lambda: len(card.sessions()) == 2, films[1], "both are there")
    answers = {what: card.ask(what) for what in ("status", "sessions")}
    answers["sessions"]["sessions"][0].update(uid=1, name="film", program="projector", pid=4321, run=None)
    answers["sessions"]["sessions"][1].update(name="mnist", program="trainer")
    card.close()
    answers["status"]["pid"] = 1
    made = []

    def make(change=lambda what, answer: answer):
        other = make_card()
        made.append(FakeDaemon(other, answers, change))
        return other, made[-1]

    yield make
    for daemon in made:
        daemon.close()


def test_gpus_and_sessions_are_those_of_top(scene):
    serve = Serve(scene)
    top = json.loads(scene.tandem("top", "--once", "--json", "--interval", "100ms"))
    gpus = serve.get("/api/v1/gpus")
    assert set(gpus) == {"at", "gpus"} and gpus["gpus"][0].keys() == top["gpus"][0].keys()
    assert gpus["gpus"][0]["card_bytes"] == top["gpus"][0]["card_bytes"]
    sessions = serve.get("/api/v1/sessions")
    assert set(sessions) == {"at", "sessions", "runs"}
    assert {s["name"] for s in sessions["sessions"]} == {"film", "mnist"}
    for session in sessions["sessions"]:
        assert session.keys() == top["sessions"][0].keys() | {"user", "project"}
        assert session["user"] and session["project"] == ""
    _, headers, _ = serve.request("/api/v1/gpus")
    assert headers["Cache-Control"] == "no-store" and headers["X-Content-Type-Options"] == "nosniff"
    assert "default-src 'self'" in headers["Content-Security-Policy"]
    assert serve.request("/api/v1/gpus", method="HEAD")[2] == ""


def test_live_events_follow_each_other(scene):
    serve = Serve(scene)
    events = serve.live()
    first, second = next(events), next(events)
    assert first["at"] < second["at"]
    assert 0 < second["gpus"][0]["utilisation"] <= 1
    assert {s["user"] for s in second["sessions"]} and second["pid"] == scene.daemon.pid
    assert next(serve.live("/api/v1/live?every=60"))["pid"] == scene.daemon.pid
    assert serve.refusal("/api/v1/live?every=0") == (400, "every must be 1 to 60")
    assert serve.refusal("/api/v1/live?often=1")[0] == 400


def test_without_a_daemon_that_is_said_and_the_next_one_is_found(make_card):
    card = make_card()
    serve = Serve(card)
    events = serve.live()
    event = next(events)
    assert (event["pid"], event["gpus"], event["sessions"]) == (None, [], [])
    assert "No daemon runs" in event["error"]
    assert serve.get("/api/v1/gpus")["gpus"] == [] and "error" in serve.get("/api/v1/gpus")
    assert "\ntandem_up 0\n" in serve.get("/metrics")
    card.start_daemon()
    wait_until(lambda: next(events)["pid"] == card.daemon.pid, serve.process, "the daemon is found")
    assert "error" not in serve.get("/api/v1/gpus")


def test_the_daemon_is_asked_once_a_second_for_all_clients_and_not_without(fake):
    card, daemon = fake()
    serve = Serve(card)
    assert daemon.questions.empty()
    streams = [serve.live() for _ in range(10)]
    first = [next(stream)["at"] for stream in streams]
    for _ in range(20):
        serve.get("/metrics")
        serve.get("/api/v1/sessions")
    second = [next(stream)["at"] for stream in streams]
    assert len(set(first)) <= 2 and len(set(second)) <= 2
    moments = {json.dumps(serve.get("/api/v1/gpus")["at"]) for _ in range(5)}
    assert len(moments) <= 2
    asked = [daemon.questions.get(timeout=PATIENCE_S)]
    while not daemon.questions.empty():
        asked.append(daemon.questions.get())
    # Each question is one of "status" and one of "sessions"; HTTP requests were 55.
    assert len(asked) <= 2 * 30 and asked.count("status") == asked.count("sessions")


def test_a_hung_daemon_is_an_error_and_not_the_end(fake):
    card, daemon = fake(lambda what, answer: "this is no object")
    serve = Serve(card)
    assert "not JSON" in serve.get("/api/v1/sessions")["error"]
    daemon.change = lambda what, answer: answer
    wait_until(lambda: serve.get("/api/v1/sessions")["sessions"], serve.process, "the answer is good again")


# ---- reports and plans


def test_reports_are_those_of_the_command(scene):
    wait_until(lambda: all(s["held_s"] > 1 for s in scene.sessions()), None, "both have worked")
    serve = Serve(scene)
    wait_until(lambda: len(serve.get("/api/v1/report?by=run")["rows"]) == 2, None, "the accounts have both")
    until = serve.get("/api/v1/report?by=run")["until"]
    query = f"since=1h&until={until}&by=run"
    ours = serve.get(f"/api/v1/report?{query}")
    theirs = json.loads(scene.tandem("report", "--since", "1h", "--until", until, "--by", "run", "--json"))
    assert ours.keys() == theirs.keys() and {r["run"] for r in ours["rows"]} == {"film", "mnist"}
    assert ours["sum"]["held_s"] == pytest.approx(theirs["sum"]["held_s"], rel=0.2)
    _, headers, body = serve.request(f"/api/v1/report?{query}&format=csv")
    assert headers["Content-Type"].startswith("text/csv") and "attachment" in headers["Content-Disposition"]
    assert {row["run"] for row in csv.DictReader(io.StringIO(body))} == {"film", "mnist"}
    assert serve.get("/api/v1/report?user=no-such-user")["rows"] == []
    for wrong in ("by=colour", "since=soon", "format=xml", "file=/etc/passwd", "since=1h&since=2h", "me=1"):
        assert serve.refusal(f"/api/v1/report?{wrong}")[0] == 400, wrong


def events(serve, query):
    """Those of the log, which the daemon begins a moment after its first session."""
    status, _, body = serve.request(f"/api/v1/events?{query}")
    return json.loads(body)["events"] if status == 200 else []


def test_the_history_agrees_with_the_log(scene):
    serve = Serve(scene)
    usage = wait_until(lambda: len(found := events(serve, "event=usage")) >= 4 and found, None, "it is recorded")
    held = sum(line["held_s"] for line in usage)

    def history():
        series = (answer := serve.get("/api/v1/history?since=10m"))["series"]
        return series and sum(value or 0 for value in series[0]["held_s"]) >= held * 0.99 and answer

    by_gpu = wait_until(history, None, "the history has that", patience=2 * PATIENCE_S)
    assert by_gpu["by"] == "gpu" and by_gpu["step_s"] == 10
    gpu = by_gpu["series"][0]
    assert gpu["key"] == "gpu0"
    assert all(len(values) == len(by_gpu["times"]) for name, values in gpu.items() if name != "key")
    assert all(active <= 10 for active in gpu["active_s"] if active is not None)
    assert gpu["held_s"][0] is None  # before the daemon
    lines = serve.get("/api/v1/events?event=usage&limit=10000")["events"]
    shown = sum(value or 0 for value in serve.get("/api/v1/history?since=10m")["series"][0]["held_s"])
    assert shown <= sum(line["held_s"] for line in lines) * 1.01
    users = serve.get("/api/v1/history?since=10m&by=user")["series"]
    assert len(users) == 1 and len(serve.get("/api/v1/history?since=10m&by=project")["series"]) == 1
    days = serve.get("/api/v1/history?since=1d")
    assert days["step_s"] == 3600 and days["series"][0]["key"] == "gpu0"


def test_events_are_those_of_the_log_and_go_on(scene):
    serve = Serve(scene)
    wait_until(lambda: len(events(serve, "event=handover")) >= 3, None, "hand-overs are logged")
    page = serve.get("/api/v1/events?event=handover&gpu=0&limit=2")
    assert len(page["events"]) == 2 and {event["event"] for event in page["events"]} == {"handover"}
    later = wait_until(lambda: (got := serve.get(f"/api/v1/events?after={page['next']}"))["events"] and got,
                       None, "there is more")  # fmt: skip
    assert not later["gap"] and later["events"][0]["ns"] >= page["events"][-1]["ns"]
    log = [json.loads(line) for line in open(scene.ask("status")["events_file"], encoding="utf-8")]
    assert all(event in log for event in later["events"])
    assert serve.get("/api/v1/events?after=1-0")["gap"]


def test_privacy_hides_names_in_events(scene):
    """Of others: these sessions are this user's, so a copy of the log has them be another's."""
    serve = Serve(scene, "--privacy")
    own = wait_until(lambda: len(found := events(serve, "event=session")) >= 2 and found, None, "they are logged")
    assert {event["name"] for event in own} == {"film", "mnist"}
    log = scene.ask("status")["events_file"]
    with open(log, encoding="utf-8") as lines:
        line = next(line for line in lines if '"event":"session"' in line)
    with open(log, "a", encoding="utf-8") as lines:
        lines.write(line.replace(f'"uid":{os.getuid()}', '"uid":4242'))
    others = [event for event in serve.get("/api/v1/events?event=session")["events"] if event["uid"] == 4242]
    assert [(event["name"], event["program"], event["pid"]) for event in others] == [("(hidden)", "(hidden)", None)]


def test_a_report_without_accounts_says_why(make_card):
    status, error = Serve(make_card()).refusal("/api/v1/report")
    assert status == 404 and "no accounts yet" in error
    card = make_card()
    card.start_daemon("--accounts", "none")
    status, error = Serve(card).refusal("/api/v1/report")
    assert status == 404 and "keeps no accounts" in error


def test_plans_are_those_of_the_command(make_card):
    card = make_card()
    serve = Serve(card)
    theirs = json.loads(card.tandem("plan", "--users", "10", "--burst", "30s", "--edit", "5m", "--json"))
    assert serve.get("/api/v1/plan?users=10&burst=30s&edit=5m") == theirs
    assert serve.get("/api/v1/plan?users=10&burst=30s&pause=5m") == theirs
    for wrong in ("", "users=0", "users=many", "users=10&burst=-1s", "users=10&svg=file"):
        assert serve.refusal(f"/api/v1/plan?{wrong}")[0] == 400, wrong


# ---- who may ask


def test_privacy_hides_other_users_programs(fake):
    card, _ = fake()
    serve = Serve(card, "--privacy")
    answers = [serve.get(path) for path in ("/api/v1/sessions", "/metrics")] + [next(serve.live())]
    for answer in answers:
        text = json.dumps(answer)
        assert "mnist" in text and "trainer" in text
        assert "film" not in text and "projector" not in text and "4321" not in text
    first, second = answers[0]["sessions"]
    assert (first["name"], first["program"], first["pid"], first["run"]) == ("(hidden)", "(hidden)", None, None)
    assert (second["name"], second["pid"] is None) == ("mnist", False)
    assert "film" in json.dumps(Serve(card).get("/api/v1/sessions"))


def test_names_of_others_cannot_break_an_answer(fake):
    evil = '<script>alert(1)</script>\x1b[2J\n"\\} tandem_up 7\u202e'

    def rename(what, answer):
        for session in answer.get("sessions", []):
            session.update(name=evil, program=evil)
        return answer

    card, _ = fake(rename)
    serve = Serve(card)
    _, headers, body = serve.request("/api/v1/sessions")
    assert headers["Content-Type"] == "application/json" and body.isascii() and "\x1b" not in body
    assert json.loads(body)["sessions"][0]["name"] == evil
    metrics = serve.get("/metrics")
    assert "\x1b" not in metrics and metrics.count("\ntandem_up ") == 1
    assert all(line.startswith(("#", "tandem_")) for line in metrics.splitlines())


def test_another_host_name_is_refused_on_loopback(make_card):
    serve = Serve(make_card())
    for path in ("/", "/metrics", "/api/v1/sessions"):
        assert serve.refusal(path, Host="evil.example:9870")[0] == 403
    assert serve.request("/", Host=f"localhost:{serve.port}")[0] == 200


def test_other_machines_need_a_token(make_card, tmp_path):
    card = make_card()
    alone = card.spawn([TANDEM, "serve", "--listen", "0.0.0.0:0"])
    _, err = alone.communicate(timeout=PATIENCE_S)
    assert alone.returncode == 2 and "--token-file" in err
    file = tmp_path / "token"
    serve = Serve(card, "--token-file", file, listen="0.0.0.0:0")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert serve.said["token_file"] == str(file)
    token = file.read_text().strip()
    for path in ("/metrics", "/api/v1/sessions", "/api/v1/live", "/nothing"):
        assert serve.refusal(path)[0] == 401
        for wrong in ("", token, f"Basic {token}", f"Bearer {token[:-1]}", f"Bearer {token}x", "Bearer "):
            assert serve.refusal(path, Authorization=wrong)[0] == 401, wrong
    assert serve.get("/api/v1/sessions", Authorization=f"Bearer {token}", Host="box")["sessions"] == []
    assert next(serve.live(Authorization=f"Bearer {token}"))["pid"] is None
    assert "Tandem" in serve.get("/")  # the page itself has no data
    assert Serve(card, "--token-file", file).refusal("/metrics")[0] == 401  # asked for on loopback, too
    file.chmod(0o644)
    opened = card.spawn([TANDEM, "serve", "--listen", "0.0.0.0:0", "--token-file", file])
    _, err = opened.communicate(timeout=PATIENCE_S)
    assert opened.returncode == 1 and "chmod 600" in err and token not in err


# ---- the program


def test_errors_of_the_command_say_what_to_do(make_card):
    card = make_card()
    serve = Serve(card)

    def error(*words, expect):
        process = card.spawn([TANDEM, "serve", *words])
        _, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == expect, err
        assert err.count("\n") == 1
        return err

    assert "another program listens" in error("--listen", f"127.0.0.1:{serve.port}", expect=1)
    assert "no address of this machine" in error("--listen", "192.0.2.1:9870", expect=1)
    assert "write for example" in error("--listen", "9870", expect=2)
    assert "--help" in error("--port", "1", expect=2)
    assert "Examples:" in card.tandem("serve", "--help") and "--privacy" in card.tandem("help", "serve")


@pytest.mark.parametrize("number, status", [(signal.SIGINT, 130), (signal.SIGTERM, 0), (signal.SIGHUP, 129)])
def test_a_signal_ends_it_under_clients(card, number, status):
    serve = Serve(card)
    events = serve.live()
    next(events)
    half = serve.connect()
    half.sendall(b"GET /metrics HTTP/1.1\r\nHost: ")
    serve.process.send_signal(number)
    assert serve.process.wait(timeout=PATIENCE_S) == status
    assert serve.process.stderr.read() == ""
    half.close()


def test_pages_that_are_not_there_and_other_paths(make_card):
    serve = Serve(make_card())
    status, headers, body = serve.request("/")
    assert status == 200 and headers["Content-Type"].startswith("text/html") and "Tandem" in body
    for path in ("/nothing", "/api", "/api/v1", "/api/v1/gpus/", "/assets/../../etc/passwd", "/%2e%2e/etc/passwd",
                 "/assets/%00", "//etc/passwd"):  # fmt: skip
        assert serve.refusal(path)[0] == 404, path
    assert serve.refusal("/api/v1/gpus?x=1")[0] == 400
    for path in ("/api/v1/history?by=run", "/api/v1/history?points=0", "/api/v1/history?since=now",
                 "/api/v1/events?limit=0", "/api/v1/events?after=soon", "/api/v1/events?gpu=x"):  # fmt: skip
        assert serve.refusal(path)[0] == 400, path
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        status, headers, _ = serve.request("/api/v1/gpus", method=method)
        assert (status, headers["Allow"]) == (405, "GET, HEAD")
