"""A user's own containers (rootless Podman) share a GPU by that user's daemon."""

import contextlib
import os
import shutil
import signal
from pathlib import Path

import pytest

from harness import SOFT_GPU, TANDEMD, finish, train, wait_until
from podman import UsersPodman, fails, inside, unusable

pytestmark = pytest.mark.skipif(bool(WHY := unusable()), reason=f"no containers here: {WHY}")
# There a container of a user has no cgroup of its own.
OLD_CGROUPS = not Path("/sys/fs/cgroup/cgroup.controllers").exists()


@pytest.fixture(scope="module")
def podman():
    with contextlib.closing(UsersPodman()) as engine:
        yield engine


def test_containers_that_want_twice_the_memory_end_right(podman):
    job = train("44M", 15)
    expected = finish(podman.bare("train", *job[1:]))
    folder = podman.root / "session"
    held = [*inside(job), "--hold", "/tmp/go"]
    both = [podman.run(*held, device=device, flags=[f"--volume={folder}:/tmp"]) for device in ("any", "0")]
    podman.await_overflow(both[0])
    assert {s["uid"] for s in podman.card.sessions()} == {podman.UID}
    (folder / "go").touch()
    assert [finish(process) for process in both] == [expected, expected]


@pytest.mark.skipif(not OLD_CGROUPS, reason="not tried: users' containers with cgroups of version 2")
def test_a_limit_that_could_not_hold_is_refused(podman):
    for device in ("0-40m", "none"):
        assert "tandem: this container has no cgroup of its own" in fails(podman.run("/bin/cat", device=device))


def empty(directory, owner):
    shutil.rmtree(directory)
    directory.mkdir(mode=0o700)
    os.chown(directory, owner, owner)


def test_roots_daemon_does_not_serve_them(podman, tmp_path):
    podman.card.daemon.send_signal(signal.SIGKILL)
    podman.card.daemon.wait()
    empty(podman.card.runtime, 0)
    env = {**podman.card.env, "TANDEM_SOFT_DIR": str(tmp_path), "LD_LIBRARY_PATH": str(SOFT_GPU)}
    daemon = podman.card.spawn([TANDEMD, "--everybody"], env=env)
    try:
        wait_until(lambda: podman.card.ask("status") is not None, daemon, "the daemon answers")
        said = fails(podman.run("/bin/cat", device="0"))
        assert "containers of a user's own, as of rootless Podman, need that user's own daemon" in said
    finally:
        daemon.kill()
        daemon.wait()
        empty(podman.card.runtime, podman.UID)
