"""Leases that a program begins and ends itself (include/tandem/tandem.h), by the examples."""

import signal

from harness import BUILD, MIB, PATIENCE_S, TANDEM, DeviceProgram, finish, wait_until

LEASE = BUILD / "bin" / "lease"
LEASE_CPP = BUILD / "bin" / "lease_cpp"
ENDLESS_MIB = 64  # that a DeviceProgram has


def hold(card):
    """A program that holds the card, and does not let go before it is killed."""
    program = DeviceProgram(card, [TANDEM, "run", "--name", "busy", "--"])
    program.ask("endless")
    program.ask("begun")
    return program


def waiting(card):
    """Names of the sessions that wait."""
    return [session["name"] for session in card.sessions() if session["state"] == "waiting"]


def test_the_examples_run_with_and_without_tandem(card):
    done = "".join(f"round {round} of 2 is done\n" for round in (1, 2))
    assert finish(card.shared([LEASE, 2, 8])) == done
    bare = card.bare([LEASE, 2, 8])
    out, err = bare.communicate(timeout=PATIENCE_S)
    assert (out, bare.returncode) == (done, 0)
    assert "start the program with `tandem run`" in err
    assert "holds the GPU: 1, may have" in finish(card.shared([LEASE_CPP], "--memory", "100M"))
    assert finish(card.bare([LEASE_CPP])) == "not under Tandem\n"


def test_two_that_overflow_the_card_find_their_memory_round_after_round(card):
    mib = card.gpu()["budget_bytes"] * 6 // 10 // MIB
    programs = [card.shared([LEASE, 8, mib]) for _ in range(2)]
    for program in programs:
        assert finish(program).endswith("round 8 of 8 is done\n")


def test_a_program_that_waits_says_so_and_leaves_the_line_when_it_is_cancelled(card):
    busy = hold(card)
    mib = card.gpu()["budget_bytes"] // MIB - ENDLESS_MIB // 2  # not beside the other
    program = card.shared([LEASE, 1, mib], "--name", "lease")
    line = program.stderr.readline()  # of `tandem run`, which waits too
    while "number 1 in line" not in line:
        line = program.stderr.readline()
        assert line, "the program says that it waits"
    assert "busy holds it" in line
    assert waiting(card) == ["lease"]
    session = card.session_of(program)
    program.send_signal(signal.SIGINT)
    out, err = program.communicate(timeout=PATIENCE_S)
    assert (out, program.returncode) == ("", 1)
    assert "the wait was cancelled" in err
    wait_until(lambda: session["pid"] not in [s["pid"] for s in card.sessions()], None, "it is gone")
    assert waiting(card) == []
    busy.kill()


def test_more_memory_than_the_run_may_have_is_refused_at_once(card):
    program = card.shared([LEASE, 1, 100], "--memory", "50M")
    _, err = program.communicate(timeout=PATIENCE_S)
    assert program.returncode == 1
    assert "more memory than the run may have" in err
