"""/metrics of `tandem serve`: Prometheus reads it, and the document and the dashboard know it."""

import http.client
import json
import re
import shutil
import socket
import subprocess
import time
import urllib.parse

import pytest

from harness import PATIENCE_S, SOURCE, train, wait_until
from serving import Serve
from test_events import end_daemon
from test_json import documented as documented_in_json

TEXT = "text/plain;version=0.0.4"
NAME = re.compile(r"\btandem_[a-z_]+")
PROMETHEUS = pytest.mark.skipif(not shutil.which("prometheus"), reason="needs Debian's prometheus")


@pytest.fixture
def scene(make_card):
    """Two programs that take turns, and a name that is hard to quote."""
    card = make_card()
    card.start_daemon()
    card.shared(train("160M", 100000), "--name", 'fi"l\\m')
    waiter = card.shared(train("160M", 100000), "--name", "mnist")
    wait_until(lambda: len(card.sessions()) == 2, waiter, "both are there")
    wait_until(lambda: card.gpu()["handovers"] > 0, waiter, "they take turns")
    return card


def samples(text):
    """{metric: [(labels, value)]} of an exposition."""
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, labels, value = re.fullmatch(r"(\w+)(\{.*\})? (\S+)", line).groups()
            found.setdefault(name, []).append((labels or "", float(value)))
    return found


def test_the_metrics_of_a_run_agree_with_its_report_and_its_own_clock(make_card):
    card = make_card(vram="128M")
    card.start_daemon()
    serve = Serve(card)
    begin = time.monotonic()
    both = {name: card.shared(train("60M", 1000000), "--name", name) for name in ("film", "mnist")}
    wait_until(lambda: card.gpu()["handovers"] >= 10, both["film"], "they take turns")
    for name in both:  # from here on they hold nothing
        card.tandem("suspend", name)
    wait_until(lambda: all(s["state"] == "suspended" for s in card.sessions()), both["film"], "both are suspended")
    took = time.monotonic() - begin  # work under way ends after the order
    metrics = samples(serve.get("/metrics"))

    def value(metric, run, more=""):
        [found] = [v for labels, v in metrics[metric] if f'run="{run}"' in labels and more in labels]
        return found

    for process in both.values():
        process.kill()
    wait_until(lambda: not card.sessions(), None, "both have ended")
    end_daemon(card)
    report = json.loads(card.tandem("report", "--by", "run", "--json"))
    rows = {row["run"]: row for row in report["rows"]}
    for run in both:
        for metric, key in (("held_seconds", "held_s"), ("active_seconds", "active_s")):
            assert value(f"tandem_session_{metric}_total", run) == pytest.approx(rows[run][key], rel=0.01), (run, key)
        assert value("tandem_session_handovers_total", run) == rows[run]["handovers"] > 0
        for direction in ("out", "in"):
            shown = value("tandem_session_swapped_bytes_total", run, f'direction="{direction}"')
            assert shown == rows[run][direction + "_bytes"]
    # Not their sum: until both have allocated all, they fit beside each other, and both hold the GPU.
    for run in both:
        assert 0 < rows[run]["active_s"] <= rows[run]["held_s"] <= took * 1.01, (run, took)


def test_metrics_agree_with_the_daemon(scene):
    serve = Serve(scene)
    before, metrics, after = scene.gpu(), samples(serve.get("/metrics")), scene.gpu()
    for name, key in (("active_seconds_total", "busy_s"), ("held_seconds_total", "held_s"),
                      ("handovers_total", "handovers")):  # fmt: skip
        ((labels, value),) = metrics["tandem_gpu_" + name]
        assert labels == '{gpu="0"}' and before[key] <= value <= after[key]
    memory = dict(metrics["tandem_gpu_memory_bytes"])
    assert memory['{gpu="0",kind="card"}'] == 256 << 20
    waiting = {re.search(r'reason="(\w+)"', labels)[1]: value for labels, value in metrics["tandem_gpu_waiting_sessions"]}
    assert waiting.keys() == documented_in_json("### Reasons") - {"place"}
    states = {re.search(r'state="(\w+)"', labels)[1]: value for labels, value in metrics["tandem_gpu_sessions"]}
    assert states.keys() == documented_in_json("### States") - {"reason_code", "unused"}
    assert sum(states.values()) == 2
    held = [labels for labels, _ in metrics["tandem_session_held_seconds_total"]]
    assert len(held) == 2 and any('run="fi\\"l\\\\m"' in labels for labels in held), held


def test_the_format_is_the_one_that_the_client_reads(scene):
    serve = Serve(scene)
    _, headers, openmetrics = serve.request("/metrics")
    assert headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    assert openmetrics.endswith("\n# EOF\n")
    _, headers, text = serve.request("/metrics", Accept=TEXT)
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4") and "# EOF" not in text
    both = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
    assert serve.request("/metrics", Accept=both)[2].endswith("# EOF\n")
    assert samples(text).keys() == samples(openmetrics).keys()


@PROMETHEUS
def test_promtool_finds_nothing_to_mend(scene):
    text = Serve(scene).get("/metrics", Accept=TEXT)
    checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True,
                             timeout=PATIENCE_S, check=False)  # fmt: skip
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


class Prometheus:
    """Debian's, which scrapes `target` every second into a folder of its own."""

    def __init__(self, card, target, directory):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        scrape = {"job_name": "tandem", "static_configs": [{"targets": [target]}]}
        config = {"global": {"scrape_interval": "1s"}, "scrape_configs": [scrape]}
        (directory / "prometheus.json").write_text(json.dumps(config))  # YAML, too
        with open(directory / "log", "w", encoding="utf-8") as log:
            self.process = card.spawn(
                ["prometheus", f"--config.file={directory}/prometheus.json", f"--storage.tsdb.path={directory}/data",
                 f"--web.listen-address=127.0.0.1:{self.port}"], stdout=log, stderr=log)  # fmt: skip

    def ask(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            connection.request("GET", path)
            return json.loads(connection.getresponse().read())["data"]
        except (OSError, ValueError, KeyError):
            return None  # it starts
        finally:
            connection.close()

    def values(self, expression):
        data = self.ask("/api/v1/query?" + urllib.parse.urlencode({"query": expression}))
        return [float(row["value"][1]) for row in data["result"]] if data else []


@PROMETHEUS
def test_prometheus_scrapes_it(scene, tmp_path):
    serve = Serve(scene)
    prometheus = Prometheus(scene, f"127.0.0.1:{serve.port}", tmp_path)
    wait_until(lambda: prometheus.values('up{job="tandem"}') == [1], prometheus.process, "a scrape is good")

    def busy():
        return [value for value in prometheus.values("rate(tandem_gpu_active_seconds_total[30s])") if value > 0]

    (rate,) = wait_until(busy, prometheus.process, "the GPU is seen to be busy")
    assert 0 < rate < 1.5
    assert len(prometheus.values('tandem_session_memory_bytes{kind="allocated"}')) == 2
    assert len(prometheus.values('tandem_session_state{run="fi\\"l\\\\m"}')) == 1
    (target,) = prometheus.ask("/api/v1/targets")["activeTargets"]
    assert target["lastError"] == "" and target["health"] == "up"


def test_the_document_has_all_metrics(scene):
    text = (SOURCE / "docs" / "serve.md").read_text()
    table = text.split("## Metrics\n", 1)[1].split("\n## ", 1)[0]
    rows = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `tandem_")]
    documented = {name for row in rows for name in NAME.findall(row)}
    assert documented == samples(Serve(scene).get("/metrics")).keys()


def expressions(value):
    if isinstance(value, dict):
        for name, member in value.items():
            if name in ("expr", "query", "definition") and isinstance(member, str):
                yield member
            else:
                yield from expressions(member)
    elif isinstance(value, list):
        for member in value:
            yield from expressions(member)


def test_the_dashboard_asks_for_metrics_that_exist(scene):
    dashboard = json.loads((SOURCE / "integrations" / "grafana" / "tandem.json").read_text())
    known = samples(Serve(scene).get("/metrics")).keys()
    asked = {name for expression in expressions(dashboard) for name in NAME.findall(expression)}
    assert len(asked) > 8 and asked <= known, asked - known
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    assert all(panel["title"] for panel in dashboard["panels"])
