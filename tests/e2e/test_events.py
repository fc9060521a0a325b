"""The event log and `tandem trace`: what they say of a run, and what happens where they cannot be written."""

import json
import os
import signal
import subprocess

import pytest

from harness import PATIENCE_S, TANDEM, TANDEMD, finish, steps, train, wait_until


def lines_of(card, name="events-soft.jsonl"):
    """The event log. Each line must be whole."""
    path = card.runtime / "history" / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def kinds_of(lines, session):
    return [line["event"] for line in lines if line.get("session") == session]


def trace_of(card, *words):
    return json.loads(card.tandem("trace", "-o", "-", *words))["traceEvents"]


def seconds_of(trace, what, session):
    row = 2 * session
    return sum(e["dur"] for e in trace if e["ph"] == "X" and e["name"] == what and e["tid"] == row) / 1e6


def end_daemon(card):
    """Its last lines are written when it has ended."""
    card.daemon.terminate()
    card.daemon.wait(PATIENCE_S)


def test_the_log_the_trace_and_the_accounts_tell_the_same(make_card):
    card = make_card(vram="128M")
    card.start_daemon()
    both = [card.shared(train("60M", steps(24)), "--name", name) for name in ("film", "mnist")]
    for process in both:
        finish(process)
    handovers = card.handovers()
    wait_until(lambda: sum(line["event"] == "gone" for line in lines_of(card)) == 2, None, "both ends are there")
    trace = trace_of(card, "--last", "1h")
    report = json.loads(card.tandem("report", "--by", "run", "--json"))
    lines = lines_of(card)
    assert lines[0]["event"] == "daemon" and lines[0]["format"] == 1
    names = {line["session"]: line["name"] for line in lines if line["event"] == "session"}
    assert sorted(names.values()) == ["film", "mnist"]
    logged = [line for line in lines if line["event"] == "handover"]
    assert [(r["epoch"], r["out_bytes"], r["in_bytes"]) for r in logged] == [
        (r["epoch"], r["out_bytes"], r["in_bytes"]) for r in handovers
    ]
    assert any(r["out_bytes"] > 0 for r in logged)
    for session in names:
        used = [line for line in lines if line["event"] == "usage" and line["session"] == session]
        assert used[-1]["last"]
        held = sum(line["held_s"] for line in used)
        assert held > 0
        assert seconds_of(trace, "lease", session) == pytest.approx(held, rel=0.01)
        [row] = [r for r in report["rows"] if r["run"] == names[session]]
        assert row["held_s"] == pytest.approx(held, rel=0.01)
        assert row["out_bytes"] == sum(line["out_bytes"] for line in used)
        assert row["sessions"] == 1
        work = sum(line["active_s"] for line in used)
        assert seconds_of(trace, "work", session) == pytest.approx(work, rel=0.01)
        # From its registration to its end, by the log's own clock.
        begin, end = (
            next(line["ns"] for line in lines if line["event"] == event and line["session"] == session)
            for event in ("session", "gone")
        )
        assert sum(line["seconds"] for line in used) == pytest.approx((end - begin) / 1e9, rel=0.01)


def test_the_log_of_a_killed_daemon_is_whole_and_the_next_one_goes_on(make_card):
    card = make_card()
    card.start_daemon()
    process = card.shared(train("60M", 100000), "--name", "film")
    session = wait_until(lambda: card.session_of(process), process, "it registers")
    wait_until(lambda: "running" in kinds_of(lines_of(card), session["id"]), process, "the log has it")
    path = card.runtime / "history" / "events-soft.jsonl"
    card.daemon.kill()
    card.daemon.wait(PATIENCE_S)
    with path.open("a") as log:
        log.write('{"at":"half a li')

    def goes_on():
        return sum(line["event"] == "daemon" for line in lines_of(card)) == 2

    def readable():
        return not path.read_text().endswith("li")

    wait_until(readable, process, "the next daemon has mended the log")
    wait_until(goes_on, process, "the next daemon writes to it")
    wait_until(lambda: kinds_of(lines_of(card), session["id"]).count("session") >= 2, process, "it is back")
    assert process.poll() is None


def test_an_event_log_that_cannot_be_written_hurts_nobody(make_card, tmp_path):
    card = make_card()
    log = tmp_path / "daemon.log"
    card.start_daemon("--log", str(log), "--events", str(tmp_path / "not" / "there.jsonl"))
    assert finish(card.shared(train("20M", 4))) == finish(card.bare(train("20M", 4)))
    wait_until(lambda: "the event log is not written" in log.read_text(), None, "the log says it")
    end_daemon(card)
    assert log.read_text().count("the event log is not written") == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount a small file system")
def test_a_full_disk_loses_lines_but_no_program(make_card, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("this machine mounts no tmpfs")
    try:
        filler = disk / "filler"
        filler.write_bytes(b"x" * 8192)
        card = make_card()
        log = tmp_path / "daemon.log"
        events = disk / "events.jsonl"
        card.start_daemon("--log", str(log), "--events", str(events))
        argv = train("20M", 4)
        expected = finish(card.bare(argv))
        for _ in range(50):
            assert finish(card.shared(argv)) == expected
            if "No space left on device" in log.read_text():
                break
        wait_until(lambda: "No space left on device" in log.read_text(), None, "the disk is full")
        assert [json.loads(line) for line in events.read_text().splitlines()]
        filler.unlink()
        wait_until(
            lambda: finish(card.shared(argv)) == expected and "written again; lines lost: " in log.read_text(),
            None,
            "there is room again",
        )
        end_daemon(card)
        assert [json.loads(line) for line in events.read_text().splitlines()]
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_the_log_goes_where_its_option_says(make_card, tmp_path):
    card = make_card()
    events = tmp_path / "events.jsonl"
    card.start_daemon("--events", str(events), "--events-size", "1M")
    assert card.ask("status")["events_file"] == str(events)
    wait_until(events.exists, card.daemon, "the log is there")
    small = card.tandem("trace", "-o", str(tmp_path / "trace.json"))
    assert small.startswith(str(tmp_path / "trace.json"))
    bad = card.spawn([TANDEMD, "--events-size", "3K"])
    assert bad.wait(PATIENCE_S) == 2 and "at least 1M" in bad.stderr.read()


def test_without_a_history_the_commands_say_what_to_do(make_card):
    card = make_card()
    card.start_daemon("--events", "none", "--accounts", "none")
    status = card.ask("status")
    assert status["events_file"] is None and status["accounts_file"] is None
    for command, option in (("trace", "--events"), ("report", "--accounts")):
        process = card.spawn([TANDEM, command])
        assert process.wait(PATIENCE_S) == 1
        assert f"start it without {option} none" in process.stderr.read()
    assert not (card.runtime / "history").exists()


def test_the_report_is_of_the_accounts_that_the_daemon_keeps(make_card, tmp_path):
    card = make_card()
    card.start_daemon("--accounts", str(tmp_path / "elsewhere.db"))
    finish(card.shared(train("20M", 2), "--name", "film"))

    def rows():
        process = card.spawn([TANDEM, "report", "--by", "run", "--json"])
        out = process.communicate(timeout=PATIENCE_S)[0]
        return process.returncode == 0 and json.loads(out)["rows"]

    [row] = wait_until(rows, None, "the accounts have it")
    assert row["run"] == "film"
    # For other kinds of GPUs it is another daemon, which has never run here.
    process = card.spawn([TANDEM, "report", "--gpu", "cuda"])
    assert process.wait(PATIENCE_S) == 1 and "there are no accounts yet" in process.stderr.read()


def test_a_name_with_control_characters_stays_text(make_card):
    card = make_card()
    card.start_daemon()
    finish(card.shared(train("20M", 2), "--name", "a\x1b]0;x\x07b"))
    wait_until(lambda: any(line["event"] == "gone" for line in lines_of(card)), None, "it has ended")
    text = card.tandem("trace", "-o", "-")
    assert "\x1b" not in text and "\x07" not in text


def test_a_trace_of_a_foreign_file_is_an_error_without_a_crash(make_card, tmp_path):
    card = make_card()
    garbage = tmp_path / "garbage"
    garbage.write_bytes(os.urandom(100000))
    assert json.loads(card.tandem("trace", "--events", str(garbage), "-o", "-"))["traceEvents"] == []
    process = card.spawn([TANDEM, "trace", "--events", str(tmp_path / "none.jsonl")])
    assert process.wait(PATIENCE_S) == 1 and "No such file" in process.stderr.read()
    process = card.spawn([TANDEM, "trace", "--last", "0s"])
    assert process.wait(PATIENCE_S) == 2 and "--last must be more than nothing" in process.stderr.read()


def test_the_daemon_ends_at_once_though_it_records(make_card):
    card = make_card()
    card.start_daemon()
    card.daemon.send_signal(signal.SIGTERM)
    assert card.daemon.wait(PATIENCE_S) == 0
