"""`tandem report` on accounts that a test writes as docs/report.md describes the table."""

import csv
import datetime
import io
import json
import os
import random
import re
import sqlite3
import subprocess

import pytest

from harness import PATIENCE_S, SOURCE, TANDEM
from test_json import documented, keys

HOUR_S = 3600
NS = 10**9
BEGIN = int(datetime.datetime(2025, 12, 1, tzinfo=datetime.timezone.utc).timestamp())
NOVEMBER = ["--since", "2025-12-01", "--until", "2025-12-03"]
SCHEMA = re.search(r'R"\(\n(  CREATE TABLE usage.*?)\)"', (SOURCE / "src/history/accounts_schema.h").read_text(),
                   re.DOTALL)[1]  # fmt: skip


class Accounts:
    """A database, and `tandem report` on it."""

    def __init__(self, directory):
        self.file = directory / "accounts.db"
        self.env = {**os.environ, "TZ": "UTC", "TANDEM_GPU": "cuda", "TANDEM_STATE_DIR": str(directory),
                    "TANDEM_RUNTIME_DIR": str(directory / "run")}  # fmt: skip
        self.env.pop("COLUMNS", None)

    def begin(self):
        self.database = sqlite3.connect(self.file, isolation_level=None)
        self.database.execute("PRAGMA journal_mode = WAL")
        self.database.executescript(SCHEMA)
        return self

    def add(self, session=1, user="anna", uid=1001, project="vision", run="mnist", gpu="GPU-a", at=BEGIN, **amounts):
        row = dict(hour=at - at % HOUR_S, session=session, started_ns=session, gpu=gpu, gpu_index=0, uid=uid, user=user,
                   project=project, run=run, program="python3", pid=7, from_ns=at * NS, to_ns=(at + 10) * NS, held_ns=0,
                   active_ns=0, waited_ns=0, allocated_byte_s=0, resident_byte_s=0, swapped_byte_s=0, handovers=0,
                   out_bytes=0, in_bytes=0)  # fmt: skip
        row.update(amounts)
        names = ", ".join(row)
        self.database.execute(f"INSERT INTO usage ({names}) VALUES ({', '.join('?' * len(row))})", list(row.values()))

    def report(self, *words, expect=0):
        process = subprocess.run([TANDEM, "report", *words], env=self.env, capture_output=True, timeout=PATIENCE_S)
        assert process.returncode == expect, process.stderr
        return (process.stderr if expect else process.stdout).decode()

    def json(self, *words):
        return json.loads(self.report(*words, "--json"))


@pytest.fixture
def accounts(tmp_path):
    return Accounts(tmp_path).begin()


def test_sums_are_those_of_the_table(accounts):
    seed = int(os.environ.get("TANDEM_SEED", random.getrandbits(32)))
    print(f"TANDEM_SEED={seed}")
    draw = random.Random(seed)
    held = {}
    for session in range(300):
        user, ns = f"user{session % 7}", draw.randrange(10 * NS)
        held[user] = held.get(user, 0) + ns
        accounts.add(session, user=user, at=BEGIN + draw.randrange(40) * HOUR_S, held_ns=ns)
    answer = accounts.json(*NOVEMBER)
    assert {row["user"]: round(row["held_s"] * NS) for row in answer["rows"]} == held
    assert round(answer["sum"]["held_s"] * NS) == sum(held.values())
    assert answer["sum"]["sessions"] == 300
    for by in ("project", "run", "gpu", "hour", "day", "day,user", "hour,gpu,run"):
        rows = accounts.json(*NOVEMBER, "--by", by)["rows"]
        assert round(sum(row["held_s"] for row in rows) * NS) == sum(held.values()), by
        assert set(by.split(",")) <= set(rows[0])


def test_every_key_is_documented(accounts):
    accounts.add(held_ns=NS)
    answer = accounts.json(*NOVEMBER, "--by", "user,project,run,gpu,hour,day")
    assert keys(answer) == documented("## `tandem report`")
    assert answer["since"] == "2025-12-01T00:00:00.000000Z"
    assert answer["rows"][0]["hour"] == "2025-12-01T00:00:00+00:00"


def test_the_table_of_the_documents_is_the_databases(accounts):
    page = (SOURCE / "docs" / "report.md").read_text().split("## The table")[1]
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    listed = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert listed == {row[1] for row in accounts.database.execute("PRAGMA table_info(usage)")}


def test_only_ones_own(accounts):
    accounts.add(1, user="me", uid=os.getuid(), held_ns=NS)
    accounts.add(2, user="anna", uid=os.getuid() + 1, held_ns=2 * NS)
    assert [row["user"] for row in accounts.json(*NOVEMBER)["rows"]] == ["anna", "me"]
    assert [row["user"] for row in accounts.json(*NOVEMBER, "--me")["rows"]] == ["me"]
    assert [row["user"] for row in accounts.json(*NOVEMBER, "--user", "anna")["rows"]] == ["anna"]
    assert "No session of bert used" in accounts.report(*NOVEMBER, "--user", "bert")


def test_the_table_is_for_people(accounts):
    accounts.add(1, held_ns=3 * HOUR_S * NS)
    accounts.add(2, user="bert", held_ns=90 * NS)
    lines = accounts.report(*NOVEMBER).splitlines()
    assert lines[0] == "2025-12-01 00:00 to 2025-12-03 00:00, 1 GPU"
    assert [line.split()[0] for line in lines[2:]] == ["USER", "anna", "bert", "in"]
    assert "3 h 00 min" in lines[3] and "1 min 30 s" in lines[4] and "3 h 01 min" in lines[5]


def test_names_reach_neither_the_terminal_nor_a_spreadsheet_raw(accounts):
    accounts.add(1, project='\x1b]0;evil\x07"\n', held_ns=NS)
    accounts.add(2, project="=HYPERLINK(1)", held_ns=2 * NS)
    for words in ([], ["--csv"], ["--json"]):
        out = accounts.report(*NOVEMBER, "--by", "project", *words)
        assert "evil" in out and "\x1b" not in out and "\x07" not in out
    rows = list(csv.DictReader(io.StringIO(accounts.report(*NOVEMBER, "--by", "project", "--csv"))))
    assert [row["project"] for row in rows] == ["'=HYPERLINK(1)", '\\x1b]0;evil\\x07"\\x0a']
    assert [float(row["held_s"]) for row in rows] == [2, 1]


def test_days_are_local(accounts):
    accounts.add(at=BEGIN + 23 * HOUR_S, held_ns=NS)
    accounts.env["TZ"] = "Europe/Berlin"
    (row,) = accounts.json("--since", "2025-11-30", "--until", "2025-12-05", "--by", "day")["rows"]
    assert row["day"] == "2025-12-02T00:00:00+01:00"


def test_without_accounts_it_says_why_and_what_to_do(tmp_path):
    accounts = Accounts(tmp_path)
    error = accounts.report(expect=1)
    assert "there are no accounts yet" in error and str(accounts.file) in error and "`tandem run`" in error
    assert "No such file" in accounts.report("--file", "/nothing", expect=1)
    accounts.file.write_text("no database, and long enough that SQLite looks at its first bytes")
    assert "is not a database" in accounts.report(expect=1)


def test_mistakes_say_what_is_allowed(accounts):
    assert "'team' is none of user, project, run, gpu, hour, day" in accounts.report("--by", "team", expect=2)
    assert "write for example 30m, 12h, 7d, today" in accounts.report("--since", "soon", expect=2)
    assert "--since 1h is not before --until 2h" in accounts.report("--since", "1h", "--until", "2h", expect=2)
    accounts.report("--csv", "--json", expect=2)
    accounts.report("--me", "--user", "anna", expect=2)


def test_help_has_examples(accounts):
    text = accounts.report("--help")
    assert "Examples:" in text and "--by day,user" in text
