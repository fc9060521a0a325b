"""Programs that overflow one card together finish with what each gives alone."""

import json
import os
import signal

import pytest

from harness import (
    MIB,
    PATIENCE_S,
    TANDEM,
    TANDEMD,
    TRAIN,
    DeviceProgram,
    children_of,
    ffmpeg_overlay,
    finish,
    steps,
    threads,
    train,
    wait_until,
)

# Each has 70 to 90 MiB.
FFMPEG = ffmpeg_overlay()
TRAIN_ARGV = train("60M", steps(12))


def solo(card, argv):
    return finish(card.bare(argv))


def assert_bytes_out_bounded(card):
    """The rule of every hand-over: out no more than the newcomer lacks, to within a chunk."""
    handovers = card.handovers()
    assert handovers
    for record in handovers:
        lacked = max(0, record["lacked_bytes"] - record["free_bytes"])
        assert record["evicted_bytes"] <= lacked + record["chunk_bytes"], record
        assert record["out_bytes"] <= record["evicted_bytes"], record
    assert any(record["out_bytes"] > 0 for record in handovers)


def assert_all_returned(card):
    """Nothing is left on the card or in the books."""
    assert card.sessions() == []
    gpu = card.gpu()
    assert gpu["charged_bytes"] == 0 and gpu["holders"] == [] and gpu["waiting"] == []
    assert card.vram_used() == 0


@pytest.mark.parametrize("argv", [FFMPEG, TRAIN_ARGV], ids=["ffmpeg", "train"])
def test_alone_gives_the_same_as_bare(card, argv):
    expected = solo(card, argv)
    assert finish(card.shared(argv)) == expected
    assert_all_returned(card)


def test_two_ffmpeg_beyond_vram(make_card):
    card = make_card(vram="128M")  # a budget of 94 MiB
    card.start_daemon()
    other = ffmpeg_overlay(source="testsrc")
    expected = [solo(card, FFMPEG), solo(card, other)]
    assert expected[0] != expected[1]
    both = [card.shared(FFMPEG), card.shared(other)]
    assert [finish(process) for process in both] == expected
    assert_bytes_out_bounded(card)
    assert_all_returned(card)


@pytest.mark.sanitized
def test_two_trainers_beyond_vram(make_card):
    card = make_card(vram="96M")
    argv = train("48M", steps(48))
    expected = solo(card, argv)  # before the daemon can measure it as foreign memory
    card.start_daemon()
    first = card.shared(argv)
    begin = first.stdout.readline()
    # It stands still in the middle of its work until the second has asked for the card.
    for pid in children_of(first.pid):
        os.kill(pid, signal.SIGSTOP)
    session = card.session_of(first)
    second = card.shared(argv)
    wait_until(lambda: card.session_of(first)["state"] in ("releasing", "stuck"), second, "the first is to leave")
    os.kill(session["pid"], signal.SIGCONT)
    assert [begin + finish(first), finish(second)] == [expected, expected]
    # The first has left and come back.
    handovers = card.handovers()
    assert any(r["to"] != session["id"] and r["out_bytes"] > 0 for r in handovers)
    assert any(r["to"] == session["id"] and r["in_bytes"] > 0 for r in handovers)
    assert_bytes_out_bounded(card)
    assert_all_returned(card)


@pytest.mark.sanitized
def test_two_programs_of_many_threads_beyond_vram(make_card):
    card = make_card(vram="76M")
    argvs = [threads(seed, 24) for seed in (1, 2)]
    expected = [solo(card, argv) for argv in argvs]
    card.start_daemon()
    both = [card.shared(argv) for argv in argvs]
    assert [finish(process) for process in both] == expected
    # Not how many: what they need changes during a hand-over.
    assert any(record["out_bytes"] > 0 for record in card.handovers())
    assert_all_returned(card)


def test_without_tandem_the_same_two_run_out_of_memory(card):
    card.daemon.terminate()
    first = card.bare(train("160M", 100000))
    wait_until(lambda: card.vram_used() > 160 * MIB, first, "the first has its memory")
    second = card.bare(train("160M", 1))
    assert "OUT_OF_MEMORY" in second.communicate(timeout=PATIENCE_S)[1]
    assert second.returncode == 1
    first.kill()


@pytest.mark.sanitized
def test_what_fits_runs_together_without_moving_a_byte(card):
    argv = train("30M", steps(24))
    expected = solo(card, argv)
    both = [card.shared(argv), card.shared(argv)]
    assert [finish(process) for process in both] == [expected, expected]
    assert card.gpu()["out_bytes"] == 0
    assert card.gpu()["in_bytes"] == 0


def test_each_sees_the_whole_budget_as_its_card(card):
    budget = card.gpu()["budget_bytes"]
    probe = json.loads(finish(card.shared([TANDEMD, "--probe"])))
    assert probe["devices"][0]["total_bytes"] == budget
    both = [card.shared([TRAIN, "--memory", f"{budget // MIB - 20}M", "--steps", "3"]) for _ in range(2)]
    for process in both:
        finish(process)
    assert_all_returned(card)


@pytest.mark.sanitized
def test_a_limit_holds(card):
    process = card.shared(train("160M", 3), "--memory", "100M")
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert "OUT_OF_MEMORY" in err
    finish(card.shared(train("80M", 3), "--memory", "100M"))


@pytest.mark.sanitized
def test_a_limit_is_for_the_whole_run(card, tmp_path):
    """Two processes of one run together stay under its limit."""
    go = tmp_path / "go"
    first, second = (" ".join(train("60M", count)) for count in (100000, 1))
    script = f"{first} & until [ -e {go} ]; do sleep 0.05; done; {second}; echo second $? >&2; kill $!; wait $!; true"
    process = card.shared(["bash", "-c", script], "--memory", "100M")
    wait_until(lambda: [s for s in card.sessions() if s["resident_bytes"] > 50 * MIB], process, "one has its memory")
    go.touch()
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    assert err.count("OUT_OF_MEMORY") == 1 and "second 1" in err


@pytest.mark.sanitized
def test_a_capture_goes_on_while_somebody_waits(make_card):
    """Asking whether a program is done must not break what it is just capturing, nor may the card be
    taken from work that the capture hides."""
    card = make_card(vram="128M")
    card.start_daemon()
    first, second = (DeviceProgram(card, [TANDEM, "run", "--"]) for _ in range(2))
    assert first.ask("kernel 1") == "queued"
    assert first.ask("capture 1000") == "capturing"
    second.tell("kernel 1")
    wait_until(lambda: card.session_of(second.process)["reason"], None, "the second waits")
    assert first.ask("launch") == "launched 0"
    assert second.line() == "queued"
    assert [program.ask("sync") for program in (first, second)] == ["sync 0", "sync 0"]


@pytest.mark.sanitized
def test_a_graph_gets_its_nodes_when_their_memory_is_back(make_card):
    card = make_card(vram="96M", context="2M")
    card.start_daemon()
    program, holder = (DeviceProgram(card, [TANDEM, "run", "--"]) for _ in range(2))
    digest = program.ask("fill 1")
    assert holder.ask("halves 1") == "queued" and holder.ask("begun") == "begun"
    assert card.session_of(program.process)["swapped_bytes"] > 0
    program.tell("node")
    wait_until(lambda: card.session_of(program.process)["reason"], None, "the node waits")
    assert holder.ask("release") == "released"
    assert program.line() == "node 0"
    assert program.ask("digest") == digest
