"""The driver for Dynamic Resource Allocation, against stand-ins for the kubelet and the API server."""

import contextlib
import signal

import pytest

from harness import finish, train, wait_until
from podman import Podman, inside, unusable

pytest.importorskip("grpc")
from kubelet import PLUGIN, Drivers  # noqa: E402
from scheduler import ApiServer  # noqa: E402

DRIVER = PLUGIN.parent / "tandem-dra-driver"
pytestmark = [
    pytest.mark.skipif(bool(WHY := unusable()), reason=f"no containers here: {WHY}"),
    pytest.mark.skipif(not DRIVER.exists(), reason="tandem-dra-driver is not built: gRPC is missing"),
]


class Node:
    """Two GPUs of 54 MiB that can be shared, offered three times in steps of 10 MiB."""

    def __init__(self):
        self.podman = Podman(devices="gpu0,gpu1")
        self.api = ApiServer()
        self.drivers = Drivers(self.podman.root / "registry")
        self.driver = None

    def start(self):
        self.driver = self.podman.card.spawn(
            [DRIVER, "--registry", self.drivers.folder, "--folder", self.podman.root / "driver", "--node", "n1",
             "--api", self.api.url, "--cdi", self.podman.specification, "--kind", self.podman.kind, "--unit", "10M",
             "--oversubscribe", "3"]
        )  # fmt: skip
        wait_until(lambda: len(self.devices()) == 2, self.driver, "both GPUs are offered")

    def devices(self):
        return self.api.slices.get("tandem-n1", {}).get("devices", ())

    def allocate(self, name, device, memory, share="0"):
        """As the scheduler does: the claim has that memory and time of that GPU. The arguments that name it."""
        result = {"request": "gpu", "driver": "tandem.dev", "pool": "n1", "device": device,
                  "consumedCapacity": {"memory": memory, "share": share}}  # fmt: skip
        self.api.claims[name] = {
            "metadata": {"name": name, "uid": f"uid-{name}"},
            "status": {"allocation": {"devices": {"results": [result]}}},
        }
        return "default", name, f"uid-{name}"

    def close(self):
        if self.driver is not None:
            self.driver.kill()
        self.api.close()
        self.podman.close()


@pytest.fixture(scope="module")
def node():
    with contextlib.closing(Node()) as made:
        yield made


@pytest.fixture(autouse=True)
def running(node):
    if node.driver is None or node.driver.poll() is not None:
        node.api.slices.clear()
        node.start()
    yield
    node.podman.settle()


def test_the_slice_offers_the_memory_and_the_time_of_each_gpu(node):
    spec = node.api.slices["tandem-n1"]
    assert (spec["driver"], spec["nodeName"], spec["pool"]["name"]) == ("tandem.dev", "n1", "n1")
    for device in spec["devices"]:
        assert device["allowMultipleAllocations"]
        memory = device["capacity"]["memory"]
        assert memory["value"] == "150Mi"
        assert memory["requestPolicy"]["validRange"] == {"min": "10Mi", "max": "50Mi", "step": "10Mi"}
        share = device["capacity"]["share"]
        assert (share["value"], share["requestPolicy"]["default"]) == ("100", "0")
        assert share["requestPolicy"]["validRange"] == {"min": "0", "max": "100", "step": "1"}


def test_pods_with_claims_that_overflow_a_gpu_end_right(node, tmp_path):
    job = train("40M", 5)
    expected = finish(node.podman.card.bare(job))
    info = node.drivers.register("tandem.dev")
    assert (info.type, info.name, list(info.supported_versions)) == ("DRAPlugin", "tandem.dev", ["v1.DRAPlugin"])
    claims = [node.allocate(name, "gpu0", "50Mi") for name in ("a", "b", "c")]
    answers = node.drivers.ask(info, "NodePrepareResources", *claims)
    pods = []
    for _, _, uid in claims:
        assert not answers[uid].error
        (device,) = answers[uid].devices
        assert (device.request_names[0], device.pool_name, device.device_name) == ("gpu", "n1", "gpu0")
        assert list(device.cdi_device_ids) == [f"{node.podman.kind}=0-50m"]
        flags = [f"--volume={tmp_path}:/tmp", f"--device={device.cdi_device_ids[0]}"]
        pods.append(node.podman.run(*inside(job), "--hold", "/tmp/go", flags=flags))
    node.podman.await_overflow(pods[0])
    assert {s["limit_bytes"] for s in node.podman.card.sessions()} == {50 << 20}
    (tmp_path / "go").touch()
    assert [finish(pod) for pod in pods] == [expected] * 3
    undone = node.drivers.ask(info, "NodeUnprepareResources", *claims)
    assert {uid: answer.error for uid, answer in undone.items()} == {"uid-a": "", "uid-b": "", "uid-c": ""}


def test_a_claim_has_its_share_of_the_time(node, tmp_path):
    job = train("20M", 3)
    expected = finish(node.podman.card.bare(job))
    info = node.drivers.register("tandem.dev")
    claims = [node.allocate("a", "gpu0", "30Mi", share="30"), node.allocate("b", "gpu0", "40Mi")]
    # A second answer, as after a restart of the kubelet, is the same.
    answers = [node.drivers.ask(info, "NodePrepareResources", *claims) for _ in range(2)]
    assert answers[0] == answers[1]
    devices = [answers[0][uid].devices[0].cdi_device_ids[0] for _, _, uid in claims]
    assert devices == [f"{node.podman.kind}=0-30m-share30", f"{node.podman.kind}=0-40m"]
    flags = [f"--volume={tmp_path}:/tmp"]
    pods = [node.podman.run("/bin/train", *job[1:], "--hold", "/tmp/go", flags=[*flags, f"--device={d}"]) for d in devices]
    wait_until(lambda: len(node.podman.card.sessions()) == 2, pods[0], "both are on the GPU")
    shares = {lease["memory_limit_bytes"]: lease["compute_share"] for lease in node.podman.leases()}
    assert shares == {30 << 20: "30%", 40 << 20: ""}
    assert {s["limit_bytes"]: s["share"] for s in node.podman.card.sessions()} == {30 << 20: "30%", 40 << 20: "1"}
    (tmp_path / "go").touch()
    assert [finish(pod) for pod in pods] == [expected, expected]


def test_a_claim_that_cannot_be_prepared_says_why(node):
    info = node.drivers.register("tandem.dev")
    good = node.allocate("good", "gpu1", "15Mi")
    strange = node.allocate("strange", "gpu1", "lots")
    reborn = ("default", "good", "uid-before")
    greedy = node.allocate("greedy", "gpu1", "10Mi", share="300")
    gone = ("default", "gone", "uid-gone")
    answers = node.drivers.ask(info, "NodePrepareResources", good, strange, greedy, reborn, gone)
    assert list(answers["uid-good"].devices[0].cdi_device_ids) == [f"{node.podman.kind}=1-20m"]
    assert answers["uid-strange"].error == "tandem: 'lots' is no quantity of memory"
    assert answers["uid-greedy"].error == "tandem: '300' is no share of a GPU's time: 0 to 100 per cent"
    assert answers["uid-before"].error == "tandem: the claim good is another one by now"
    assert answers["uid-gone"].error == 'the API server refuses: resourceclaims "gone" not found'


def test_without_the_daemon_the_node_has_no_gpu(node):
    before = node.api.slices["tandem-n1"]["pool"]["generation"]
    node.podman.card.daemon.send_signal(signal.SIGKILL)
    node.podman.card.daemon.wait()
    wait_until(lambda: len(node.devices()) == 0, node.driver, "no GPU is offered")
    node.podman.start_daemon()
    wait_until(lambda: len(node.devices()) == 2, node.driver, "both are offered again")
    assert node.api.slices["tandem-n1"]["pool"]["generation"] > before


def test_the_driver_comes_back_after_kill_9_and_pods_run_on(node, tmp_path):
    job = train("20M", 5)
    expected = finish(node.podman.card.bare(job))
    info = node.drivers.register("tandem.dev")
    claim = node.allocate("c", "gpu0", "30Mi")
    device = node.drivers.ask(info, "NodePrepareResources", claim)["uid-c"].devices[0].cdi_device_ids[0]
    flags = [f"--volume={tmp_path}:/tmp", f"--device={device}"]
    pod = node.podman.run("/bin/train", *job[1:], "--hold", "/tmp/go", flags=flags)
    wait_until(lambda: len(node.podman.card.sessions()) == 1, pod, "it is on the GPU")
    node.driver.kill()
    node.driver.wait()
    node.api.slices.clear()
    node.start()
    again = node.drivers.ask(node.drivers.register("tandem.dev"), "NodePrepareResources", claim)
    assert again["uid-c"].devices[0].cdi_device_ids[0] == device
    (tmp_path / "go").touch()
    assert finish(pod) == expected


def test_what_the_kubelet_and_the_api_server_refuse_is_in_the_log(node):
    node.drivers.register("tandem.dev", error="name taken")
    node.driver.send_signal(signal.SIGTERM)
    assert node.driver.wait(timeout=60) == 0
    assert "the kubelet does not take the driver: name taken" in node.driver.stderr.read()
    node.api.refuse("resourceslices is forbidden")
    node.api.slices.clear()
    node.driver = node.podman.card.spawn(
        [DRIVER, "--registry", node.drivers.folder, "--folder", node.podman.root / "driver", "--node", "n1",
         "--api", node.api.url, "--cdi", node.podman.specification, "--kind", node.podman.kind]
    )  # fmt: skip
    said = next(line for line in node.driver.stderr if "API server" in line)
    assert "the API server refuses: resourceslices is forbidden" in said
    node.api.refusal = None
    wait_until(lambda: "tandem-n1" in node.api.slices, node.driver, "it tries again")
    node.driver.kill()
    node.driver.wait()
