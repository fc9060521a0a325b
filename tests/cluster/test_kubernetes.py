"""The device plugin of Kubernetes, against a stand-in for the kubelet, with real containers."""

import base64
import contextlib
import fcntl
import json
import os
import shutil
import signal
import ssl
import subprocess
import urllib.error
import urllib.request

import pytest

from harness import SOURCE, finish, train, wait_until
from podman import Podman, copy_program, fails, inside, unusable

pytest.importorskip("grpc")
from kubelet import PLUGIN, Kubelet  # noqa: E402
from scheduler import ApiServer, Scheduler, Unschedulable  # noqa: E402

pytestmark = [
    pytest.mark.skipif(bool(WHY := unusable()), reason=f"no containers here: {WHY}"),
    pytest.mark.skipif(not PLUGIN.exists(), reason="tandem-device-plugin is not built: gRPC is missing"),
]
EXTENDER = PLUGIN.parent / "tandem-scheduler-extender"
LABEL = "tandem.dev/gpu-memory-free"
MEMORY, SHARE = "tandem.dev/gpu-memory", "tandem.dev/gpu"


class Node:
    """Two GPUs of 54 MiB that can be shared, as 10 units of 10 MiB each."""

    def __init__(self, bus="8GB/s"):
        self.podman = Podman(devices="gpu0,gpu1", bus=bus)
        self.kubelet = Kubelet(self.podman.root / "plugins")
        self.api = ApiServer()
        self.start_plugin()

    def start_plugin(self):
        self.plugin = self.podman.card.spawn(
            [PLUGIN, "--plugins", self.kubelet.folder, "--cdi", self.podman.specification, "--kind", self.podman.kind,
             "--unit", "10M", "--oversubscribe", "2", "--shares", "3", "--node", "node", "--api", self.api.url,
             "--pod-resources", self.kubelet.pod_resources]
        )  # fmt: skip
        self.kubelet.await_devices(MEMORY, 20, self.plugin)
        self.kubelet.await_devices(SHARE, 6, self.plugin)

    def await_label(self, value):
        wait_until(lambda: self.api.nodes.get("node", {}).get(LABEL) == value, self.plugin, f"the label says {value}")

    def run(self, devices, *words, name=None):
        flags = [f"--device={device}" for device in devices]
        return self.podman.run(*words, flags=flags, name=name)

    def close(self):
        self.plugin.kill()
        self.kubelet.stop()
        self.api.close()
        self.podman.close()


@pytest.fixture(scope="module")
def node():
    with contextlib.closing(Node()) as made:
        yield made


@pytest.fixture(autouse=True)
def nothing_is_left(node):
    yield
    node.kubelet.used.clear()
    node.podman.settle()
    if node.plugin.poll() is not None:
        node.start_plugin()
    node.kubelet.await_devices(MEMORY, 20, node.plugin)


def test_pods_that_overflow_a_gpu_end_right(node, tmp_path):
    """Two that ask for memory, and one that asks for the whole."""
    job = train("40M", 5)
    expected = finish(node.podman.card.bare(job))
    devices = [node.kubelet.allocate(*asked)[1] for asked in ((MEMORY, 5), (MEMORY, 5), (SHARE, 1))]
    assert devices == [[f"{node.podman.kind}={name}"] for name in ("0-50m", "0-50m", "0")]  # all on one
    held = [*inside(job), "--hold", "/tmp/go"]
    pods = [node.podman.run(*held, flags=[f"--volume={tmp_path}:/tmp", f"--device={d}"]) for [d] in devices]
    node.podman.await_overflow(pods[0])
    assert sorted(s["limit_bytes"] for s in node.podman.card.sessions()) == [50 << 20, 50 << 20, 54 << 20]
    (tmp_path / "go").touch()
    assert [finish(pod) for pod in pods] == [expected] * 3


def test_a_pod_that_is_killed_in_the_middle_of_a_swap_hurts_no_other():
    slow = Node(bus="40MB/s")
    try:
        card = slow.podman.card
        job = train("40M", 10)
        expected = finish(card.bare(job))
        devices = [slow.kubelet.allocate(MEMORY, 5)[1] for _ in range(2)]
        victim = slow.run(devices[0], *inside(train("40M", 100000)))
        first = wait_until(lambda: next(iter(card.sessions()), None), victim, "it is on the GPU")
        pod = slow.run(devices[1], *inside(job))
        wait_until(lambda: len(card.sessions()) == 2, pod, "both are on the GPU")
        wait_until(lambda: card.ask("status")["gpus"][0]["restoring"] == first["id"], victim, "its memory comes back")
        os.kill(first["pid"], signal.SIGKILL)
        assert finish(pod) == expected
        victim.communicate(timeout=300)
        assert victim.returncode == 128 + signal.SIGKILL
        wait_until(lambda: slow.podman.leases() == [], card.daemon, "no lease is left")
    finally:
        slow.close()


def test_a_share_is_the_whole_of_a_gpu(node):
    _, devices = node.kubelet.allocate(SHARE, 1)
    assert devices == [f"{node.podman.kind}=0"]
    finish(node.run(devices, *inside(train("40M", 2))))


def test_what_is_left_on_two_gpus_is_not_one_room(node):
    for _ in range(2):
        node.kubelet.allocate(MEMORY, 7)  # 3 are left on each
    with pytest.raises(Exception, match="no GPU of this node has room for the container: it would have 3 on gpu0, 1 on gpu1"):
        node.kubelet.allocate(MEMORY, 4)
    assert node.kubelet.allocate(MEMORY, 3)[1] == [f"{node.podman.kind}=0-30m"]


def test_the_plugin_registers_again_after_the_kubelets_restart(node):
    before = node.kubelet.registrations
    node.kubelet.restart()
    node.kubelet.await_devices(MEMORY, 20, node.plugin)
    node.kubelet.await_devices(SHARE, 6, node.plugin)
    assert node.kubelet.registrations == before + 2
    finish(node.run(node.kubelet.allocate(MEMORY, 5)[1], *inside(train("12M", 1))))


def test_pods_outlive_the_plugin(node, tmp_path):
    job = train("20M", 5)
    expected = finish(node.podman.card.bare(job))
    flags = [f"--volume={tmp_path}:/tmp", *(f"--device={d}" for d in node.kubelet.allocate(MEMORY, 4)[1])]
    pod = node.podman.run(*inside(job), "--hold", "/tmp/go", flags=flags)
    wait_until(lambda: len(node.podman.card.sessions()) == 1, pod, "it is on the GPU")
    node.plugin.kill()
    node.plugin.wait()
    node.start_plugin()
    (tmp_path / "go").touch()
    assert finish(pod) == expected


def test_without_the_daemon_no_device_is_healthy(node):
    node.podman.card.daemon.send_signal(signal.SIGKILL)
    node.podman.card.daemon.wait()
    wait_until(lambda: set(node.kubelet.devices[MEMORY].values()) == {"Unhealthy"}, node.plugin, "none is healthy")
    node.podman.start_daemon()
    node.kubelet.await_devices(MEMORY, 20, node.plugin)


@contextlib.contextmanager
def lost(card, gpu):
    """The driver answers no question for the GPU: its state is damaged, and a process seems to use it."""
    with open(card.soft / f"tandem-soft-{gpu}", "wb") as state:
        fcntl.lockf(state, fcntl.LOCK_EX, 1)
        yield


def test_a_lost_gpu_is_unhealthy_and_the_other_is_not(node):
    card = node.podman.card
    states = lambda: {(name.split("-")[0], health) for name, health in node.kubelet.devices[MEMORY].items()}  # noqa: E731
    node.await_label("10-10")
    with lost(card, "gpu1"):
        wait_until(lambda: states() == {("gpu0", "Healthy"), ("gpu1", "Unhealthy")}, node.plugin, "one is unhealthy")
        assert [gpu["healthy"] for gpu in card.ask("status")["gpus"]] == [True, False]
        assert "lost: the driver no longer answers for it" in card.tandem("status")
        node.await_label("10-0")
    node.kubelet.await_devices(MEMORY, 20, node.plugin)
    node.await_label("10-10")


def test_a_signal_ends_the_plugin(node):
    node.plugin.send_signal(signal.SIGTERM)
    assert node.plugin.wait(timeout=60) == 0


def test_mistakes_are_said_in_a_line(node):
    for words, said in [(["--unit", "0.5K"], "--unit: give whole MiB"), (["--shares", "x"], "--shares")]:
        failed = node.podman.card.spawn([PLUGIN, *words])
        _, err = failed.communicate(timeout=60)
        assert failed.returncode != 0 and said in err


def test_the_plugin_finds_tandem_where_it_is_called_by_its_name_and_says_that_it_waits(node, tmp_path):
    env = {**node.podman.card.env, "PATH": f"{PLUGIN.parent}:{os.environ['PATH']}"}
    plugin = node.podman.card.spawn([PLUGIN.name, "--plugins", tmp_path, "--cdi", tmp_path / "cdi.json"], env=env)
    said = [plugin.stderr.readline() for _ in range(2)]
    assert said[0] == "tandem-device-plugin: offers the GPUs of this node\n"
    assert said[1] == f"tandem-device-plugin: waits for the kubelet: there is no {tmp_path}/kubelet.sock\n"
    plugin.send_signal(signal.SIGTERM)
    assert plugin.wait(timeout=60) == 0


@contextlib.contextmanager
def extender(node, *words):
    """Yields its address, once it listens."""
    program = node.podman.card.spawn([EXTENDER, "--listen", "127.0.0.1:0", "--api", node.api.url, *words])
    line = program.stderr.readline()
    assert "listens at" in line, line
    yield line.split()[-1]
    program.send_signal(signal.SIGTERM)
    assert program.wait(timeout=60) == 0


@pytest.fixture
def scheduler(node):
    """Of the node, and of another one without GPUs to speak of; with the extender."""
    node.api.nodes["small"] = {LABEL: "2-1"}
    node.await_label("10-10")

    def free():
        return {"node": 20 - len(node.kubelet.used.get(MEMORY, ())), "small": 3}

    with extender(node) as address:
        yield Scheduler(node.api, f"http://{address}", free)
    node.api.refusal = None
    node.api.bindings.clear()


def test_a_pod_goes_where_a_gpu_has_room(node, scheduler):
    assert scheduler.place(MEMORY, 7) == "node"
    node.kubelet.allocate(MEMORY, 7)
    assert scheduler.place(MEMORY, 7) == "node"
    node.kubelet.allocate(MEMORY, 7)
    node.await_label("3-3")
    # The node has six units, and three are the most on one GPU: Kubernetes alone would send it there.
    assert scheduler.free()["node"] == 6
    with pytest.raises(Unschedulable, match="tandem: no GPU has 4 of tandem.dev/gpu-memory free"):
        scheduler.place(MEMORY, 4)
    assert scheduler.place(MEMORY, 3) == "node"
    assert [where for _, where in node.api.bindings] == ["node"] * 3


def test_pods_that_come_at_once_do_not_get_the_same_room(node, scheduler):
    assert scheduler.place(MEMORY, 8) == "node"
    with pytest.raises(Unschedulable, match="tandem: pods that were bound a moment ago come first"):
        scheduler.try_once(MEMORY, 8)
    assert scheduler.try_once(MEMORY, 2) == "node"  # one GPU has room for both, whichever comes first
    for units in (2, 8):
        node.kubelet.allocate(MEMORY, units)
    assert scheduler.place(MEMORY, 8) == "node"  # the labels show them by now
    node.kubelet.allocate(MEMORY, 8)
    node.await_label("2-0")
    assert scheduler.place(MEMORY, 1) == "small"  # the least to spare


def test_memory_that_a_pod_gives_back_is_free_again(node, scheduler):
    node.kubelet.allocate(MEMORY, 6)
    node.await_label("10-4")
    node.kubelet.used.clear()
    node.await_label("10-10")


def test_the_node_with_the_most_room_may_be_preferred(node):
    node.api.nodes["half"] = {LABEL: "5"}
    node.await_label("10-10")
    for words, best in [([], "half"), (["--spread"], "node")]:
        with extender(node, *words) as address:
            assert Scheduler(node.api, f"http://{address}", lambda: {"node": 20, "half": 5}).place(MEMORY, 2) == best
    node.api.bindings.clear()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """Files: a certificate of 127.0.0.1 that signs itself, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", folder / "key", "-out", folder / "crt",
             "-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]  # fmt: skip
    subprocess.run(words, check=True, capture_output=True)
    return folder / "crt", folder / "key"


def test_kais_annotations_become_the_resource(node, certificate):
    trusted = ssl.create_default_context(cafile=certificate[0])
    options = ["--unit", "10M", "--gpu-memory", "100M", "--tls-certificate", certificate[0], "--tls-key", certificate[1]]

    def mutate(annotations):
        pod = {"metadata": {"annotations": annotations}, "spec": {"containers": [{"name": "c"}]}}
        review = {"kind": "AdmissionReview", "request": {"uid": "1", "object": pod}}
        request = urllib.request.Request(
            f"https://{address}/mutate", json.dumps(review).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60, context=trusted) as answer:
            return json.load(answer)["response"]

    with extender(node, *options) as address:
        half = mutate({"gpu-fraction": "0.5"})
        assert half["allowed"] and half["patchType"] == "JSONPatch"
        assert json.loads(base64.b64decode(half["patch"])) == [
            {"op": "add", "path": "/spec/containers/0/resources", "value": {"limits": {MEMORY: "5"}}}
        ]
        wrong = mutate({"gpu-memory": "4Gi"})
        assert not wrong["allowed"] and "give MiB" in wrong["status"]["message"]
        assert mutate({}) == {"uid": "1", "allowed": True}


def test_the_plugin_takes_part_in_tls_only_where_it_is_trusted(node, certificate):
    """The API server by HTTPS: with its certificate, and without."""
    node.plugin.send_signal(signal.SIGTERM)
    node.plugin.wait(timeout=60)
    api = ApiServer(certificate)
    for words, said in [(["--ca", certificate[0]], None), ([], "does not answer: SSLServerVerification")]:
        plugin = node.podman.card.spawn(
            [PLUGIN, "--plugins", node.kubelet.folder, "--cdi", node.podman.specification, "--kind", node.podman.kind,
             "--unit", "10M", "--node", "tls", "--api", api.url, "--pod-resources", node.kubelet.pod_resources, *words]
        )  # fmt: skip
        if said is None:
            wait_until(lambda: LABEL in api.nodes.get("tls", {}), plugin, "the node has its label")
        else:
            assert said in next(line for line in plugin.stderr if "API server" in line)
        plugin.send_signal(signal.SIGTERM)
        plugin.wait(timeout=60)
    api.close()


def test_what_the_api_server_refuses_is_the_pods_error(node, scheduler):
    node.api.refuse("pods is forbidden")
    with pytest.raises(Unschedulable, match="tandem: the API server refuses: pods is forbidden"):
        scheduler.place(MEMORY, 7)


def test_garbage_does_not_end_the_extender(node, scheduler):
    for body in (b"", b"{", b"\xff\xfe", b"[" * 100_000, b'{"pod": 3}'):
        with pytest.raises(urllib.error.HTTPError, match="400"):
            scheduler.post("filter", body)
    assert scheduler.place(MEMORY, 7) == "node"


def test_the_plugin_says_why_it_cannot_label_its_node(node):
    node.plugin.send_signal(signal.SIGTERM)
    node.plugin.wait(timeout=60)
    node.api.refuse("nodes is forbidden")
    try:
        node.start_plugin()
        said = next(line for line in node.plugin.stderr if "API server" in line)
    finally:
        node.api.refusal = None
    assert "the API server refuses: nodes is forbidden" in said
    node.api.nodes.clear()
    node.await_label("10-10")


def test_the_extenders_image_is_built_and_starts(node):
    """On a stand-in for Debian's image: the libraries are there, and apt-get does nothing."""
    files, context = node.podman.root / "debian", node.podman.root / "context"
    for program in ("/bin/bash", "/bin/rm", str(EXTENDER)):
        copy_program(program, files)
    (files / "bin" / EXTENDER.name).unlink()
    (files / "bin" / "sh").symlink_to("bash")
    (files / "bin" / "apt-get").write_text("#!/bin/sh\n")
    (files / "bin" / "apt-get").chmod(0o755)
    for folder in ("etc", "tmp", "proc", "dev", "sys", "run", "usr/bin", "var"):
        (files / folder).mkdir(parents=True)
    node.podman.import_files(files, "debian")
    context.mkdir()
    shutil.copy(EXTENDER, context)
    steps = SOURCE / "integrations" / "kubernetes" / "manifests" / "Containerfile"
    node.podman.command("build", "-q", "--isolation", "chroot", "--from", "debian", "-t", "extender", "-f", steps, context)
    assert "Tells Kubernetes' scheduler" in finish(node.podman.run("--help", image="extender"))
    assert "--api: give the address" in fails(node.podman.run(image="extender"))


def test_mistakes_in_the_extenders_options_are_said_in_a_line(node, tmp_path):
    for words, said in [
        (["--listen", "here", "--api", "http://x"], "--listen: give ADDRESS:PORT"),
        ([], "--api: give the address"),
        (["--api", "nonsense"], "--api: give an address such as https://10.0.0.1:6443"),
        (["--api", "http://x", "--token", tmp_path / "none"], "--token: File does not exist"),
        (["--tls-certificate", PLUGIN], "--tls-certificate requires --tls-key"),
        (["--tls-certificate", PLUGIN, "--tls-key", PLUGIN, "--api", "http://x"], "cannot use the certificate"),
    ]:
        failed = node.podman.card.spawn([EXTENDER, *words])
        _, err = failed.communicate(timeout=60)
        assert failed.returncode != 0 and said in err
