#!/usr/bin/env python3
"""Kubernetes itself on this machine, with one node and two software GPUs; prints what it did as JSON lines.

    TANDEM_BUILD=build/release python3 tests/cluster/real_kubernetes.py --bin FOLDER [--keep] [CHECK...]

FOLDER has kube-apiserver, kube-scheduler, kubelet, kubectl, etcd, containerd, containerd-shim-runc-v2 and ctr.
docs/testing.md says how to get them. Needs root, runc, Podman, openssl and a machine that is no node:
the kubelet's folder is /var/lib/kubelet. `./dev test --cluster` does not run this: Debian 12 has none of it.
--keep: ends nothing and leaves all files, for a look at the cluster.
"""

import argparse
import base64
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "e2e"), str(HERE)]

if "TANDEM_BUILD" not in os.environ:
    sys.exit("set TANDEM_BUILD to a build of Tandem, such as build/release")

from harness import BUILD, finish, train, wait_until  # noqa: E402
from podman import Podman, inside  # noqa: E402

MANIFESTS = HERE.parents[1] / "integrations" / "kubernetes" / "manifests"
KUBELET = Path("/var/lib/kubelet")
IMAGE, PAUSE, MUSL = (f"localhost/tandem-{name}:latest" for name in ("test", "pause", "musl"))
PROGRAMS = ("kube-apiserver", "kube-scheduler", "kubelet", "kubectl", "etcd", "containerd", "containerd-shim-runc-v2", "ctr")
MEMORY = "tandem.dev/gpu-memory"
API, ETCD, EXTENDER, SERVICES = "https://127.0.0.1:16443", "http://127.0.0.1:12379", 18890, "10.77.0.0/24"
PATIENCE_S = 120
JOBS = {"short": train("30M", 10), "paused": train("30M", 60, "--pause-ms", "20")}
LONG = train("40M", 100000)


class Failed(Exception):
    pass


def await_that(condition, what):
    return wait_until(condition, None, what, PATIENCE_S)


class Certificates:
    """An authority, and what it signs: each user's file has the certificate and its key."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()
        self.ca = folder / "ca.crt"
        self.openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=test", "-days", "2", "-keyout",
                     folder / "ca.key", "-out", self.ca)  # fmt: skip
        self.openssl("genrsa", "-out", folder / "accounts.key", "2048")

    def openssl(self, *words):
        subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)

    def sign(self, name, subject):
        """Also for a server at this machine's own address."""
        key, request, made = (self.folder / f"{name}.{end}" for end in ("key", "csr", "crt"))
        extension = self.folder / "extension"
        extension.write_text("subjectAltName=IP:127.0.0.1,IP:10.77.0.1,DNS:localhost\n")
        self.openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", subject, "-keyout", key, "-out", request)
        self.openssl("x509", "-req", "-in", request, "-CA", self.ca, "-CAkey", self.folder / "ca.key", "-CAcreateserial",
                     "-days", "2", "-extfile", extension, "-out", made)  # fmt: skip
        both = self.folder / f"{name}.pem"
        both.write_text(made.read_text() + key.read_text())
        return both


class Cluster:
    def __init__(self, bin_folder):
        self.bin = bin_folder
        self.cleanup = contextlib.ExitStack()
        self.processes = {}
        self.podman = Podman(devices="gpu0,gpu1")
        self.cleanup.callback(self.podman.close)
        self.card, self.folder = self.podman.card, self.podman.root
        self.certificates = Certificates(self.folder / "certificates")
        self.node = os.uname().nodename.lower()
        self.expected = {name: finish(self.card.bare(job)) for name, job in JOBS.items()}

    # ---- parts

    def start(self, name, *words):
        log = open(self.folder / f"{name}.log", "a")
        path = {"PATH": f"{self.bin}:/usr/local/sbin:/usr/sbin:/sbin:{os.environ['PATH']}"}
        self.processes[name] = subprocess.Popen(list(map(str, words)), env={**self.card.env, **path},
                                                stdin=subprocess.DEVNULL, stdout=log, stderr=log)  # fmt: skip
        self.cleanup.callback(self.end, name)

    def end(self, name, how=signal.SIGTERM):
        process = self.processes.pop(name, None)
        if process is not None:
            process.send_signal(how)
            process.wait()

    def access(self, name, subject):
        """A file for clients of the API server."""
        both = self.certificates.sign(name, subject)
        file = self.folder / f"{name}.conf"
        user = {"client-certificate": str(both), "client-key": str(both)}
        cluster = {"server": API, "certificate-authority": str(self.certificates.ca)}
        file.write_text(yaml.safe_dump({
            "apiVersion": "v1", "kind": "Config", "current-context": "c", "users": [{"name": "u", "user": user}],
            "clusters": [{"name": "k", "cluster": cluster}], "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        }))  # fmt: skip
        return file

    def begin(self):
        self.start_control()
        self.start_runtime()
        self.access("kubelet", f"/O=system:nodes/CN=system:node:{self.node}")
        self.start_kubelet()
        self.start_plugin()
        self.start_scheduler()
        await_that(lambda: self.capacity() == 20, "the node offers 20 units")
        await_that(lambda: self.label() == "10-10", "the node has its label")

    def start_control(self):
        keys = self.certificates.folder
        server, admin = self.certificates.sign("server", "/CN=kubernetes"), self.access("admin", "/O=system:masters/CN=admin")
        self.start("etcd", self.bin / "etcd", "--data-dir", self.folder / "etcd", "--listen-client-urls", ETCD,
                   "--advertise-client-urls", ETCD, "--listen-peer-urls", "http://127.0.0.1:12380")  # fmt: skip
        self.start("kube-apiserver", self.bin / "kube-apiserver", "--etcd-servers", ETCD, "--secure-port=16443",
                   "--bind-address=127.0.0.1", f"--service-cluster-ip-range={SERVICES}", "--client-ca-file", self.certificates.ca,
                   "--tls-cert-file", server, "--tls-private-key-file", server, "--authorization-mode=Node,RBAC",
                   "--service-account-issuer=https://test", "--service-account-key-file", keys / "accounts.key",
                   "--service-account-signing-key-file", keys / "accounts.key", "--disable-admission-plugins=ServiceAccount",
                   "--enable-admission-plugins=NodeRestriction")  # fmt: skip
        self.admin = admin
        await_that(lambda: self.kubectl("get", "--raw", "/readyz", check=False) == "ok", "the API server is ready")

    def start_runtime(self):
        configuration = self.folder / "containerd.toml"
        self.socket = self.folder / "containerd.sock"
        network = self.folder / "network"
        network.mkdir()
        (network / "10-loopback.conf").write_text('{"cniVersion": "0.4.0", "name": "lo", "type": "loopback"}')
        configuration.write_text(f"""
version = 2
root = "{self.folder}/containerd"
state = "{self.folder}/containerd-state"
[grpc]
address = "{self.socket}"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE}"
restrict_oom_score_adj = true
enable_cdi = true
cdi_spec_dirs = ["/var/run/cdi"]
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "native"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "{network}"
""")
        self.start("containerd", self.bin / "containerd", "--config", configuration)
        self.cleanup.callback(self.end_containers)
        await_that(self.socket.exists, "containerd listens")
        self.podman.command("import", "-q", "--change", 'CMD ["/bin/sleep", "1000000"]', self.folder / "image.tar", PAUSE)
        self.podman.import_image(MUSL, musl=True)
        archive = self.folder / "images.tar"
        self.podman.command("save", "-q", "--multi-image-archive", "-o", archive, IMAGE, PAUSE, MUSL)
        self.ctr("images", "import", archive)

    def ctr(self, *words):
        return finish(self.card.spawn([self.bin / "ctr", "--address", self.socket, "--namespace", "k8s.io", *words]))

    def end_containers(self):
        for task in self.ctr("tasks", "list", "--quiet").split():
            with contextlib.suppress(AssertionError):  # a sandbox ends with its last container
                self.ctr("tasks", "delete", "--force", task)

    def start_kubelet(self):
        configuration = self.folder / "kubelet.yaml"
        configuration.write_text(yaml.safe_dump({
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "failSwapOn": False,
            "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": False},
                               "x509": {"clientCAFile": str(self.certificates.ca)}},
            "authorization": {"mode": "AlwaysAllow"}, "cgroupDriver": "cgroupfs", "enforceNodeAllocatable": [],
            "cgroupsPerQOS": False, "evictionHard": {"nodefs.available": "1%", "memory.available": "50Mi"},
            "syncFrequency": "2s", "maxPods": 110,
        }))  # fmt: skip
        if not KUBELET.exists():
            self.cleanup.callback(self.remove_kubelet)
        self.start("kubelet", self.bin / "kubelet", "--config", configuration, "--kubeconfig", self.folder / "kubelet.conf",
                   "--container-runtime=remote", f"--container-runtime-endpoint=unix://{self.socket}",
                   f"--hostname-override={self.node}")  # fmt: skip
        await_that((KUBELET / "device-plugins" / "kubelet.sock").exists, "the kubelet takes plugins")

    def remove_kubelet(self):
        """It mounts its folder on itself."""
        subprocess.run(["umount", "--recursive", KUBELET], stderr=subprocess.DEVNULL)
        shutil.rmtree(KUBELET)

    def start_plugin(self):
        self.start("plugin", BUILD / "bin" / "tandem-device-plugin", "--cdi", self.podman.specification, "--kind",
                   self.podman.kind, "--unit", "10M", "--oversubscribe", "2", "--node", self.node, "--api", API,
                   "--ca", self.certificates.ca, "--certificate", self.certificates.folder / "kubelet.pem")  # fmt: skip

    def start_scheduler(self):
        kubeconfig = self.access("scheduler", "/CN=system:kube-scheduler")
        keys = self.certificates.sign("extender", "/CN=extender")
        self.start("extender", BUILD / "bin" / "tandem-scheduler-extender", "--api", API, "--ca", self.certificates.ca,
                   "--certificate", self.certificates.folder / "scheduler.pem", "--listen", f"127.0.0.1:{EXTENDER}",
                   "--unit", "10M", "--gpu-memory", "100M", "--tls-certificate", keys, "--tls-key", keys)  # fmt: skip
        configuration = yaml.safe_load((MANIFESTS / "scheduler.yaml").read_text())
        configuration["apiVersion"] = "kubescheduler.config.k8s.io/v1beta1"
        configuration["leaderElection"] = {"leaderElect": False}
        configuration["clientConnection"]["kubeconfig"] = str(kubeconfig)
        configuration["extenders"][0] |= {"urlPrefix": f"https://127.0.0.1:{EXTENDER}", "enableHTTPS": True,
                                          "tlsConfig": {"caFile": str(self.certificates.ca)}}  # fmt: skip
        file = self.folder / "scheduler.yaml"
        file.write_text(yaml.safe_dump(configuration))
        self.start("kube-scheduler", self.bin / "kube-scheduler", "--config", file)

    # ---- what a person does

    def kubectl(self, *words, text=None, check=True):
        done = subprocess.run([self.bin / "kubectl", "--kubeconfig", self.admin, *map(str, words)], input=text,
                              capture_output=True, text=True, timeout=PATIENCE_S)  # fmt: skip
        if check and done.returncode != 0:
            raise Failed(f"kubectl {' '.join(map(str, words))}: {done.stderr.strip()}")
        return done.stdout

    def get(self, *words):
        return json.loads(self.kubectl("get", *words, "-o", "json"))

    def make(self, thing):
        self.kubectl("create", "-f", "-", text=yaml.safe_dump(thing))

    def run(self, name, command, units=None, annotations=None, namespace="default", scheduler="default-scheduler", image=IMAGE):
        limits = {MEMORY: units} if units is not None else {}
        container = {"name": "main", "image": image, "imagePullPolicy": "Never", "command": inside(command),
                     "resources": {"limits": limits}}  # fmt: skip
        self.make({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, "annotations": annotations or {}},
            "spec": {"restartPolicy": "Never", "hostNetwork": True, "terminationGracePeriodSeconds": 0, "schedulerName": scheduler,
                     "tolerations": [{"operator": "Exists"}], "containers": [container]},
        })  # fmt: skip

    def phase(self, name, namespace="default"):
        return self.get("pod", name, "-n", namespace)["status"].get("phase")

    def result(self, name, namespace="default"):
        await_that(lambda: self.phase(name, namespace) in ("Succeeded", "Failed"), f"{name} ends")
        return self.printed(self.get("pod", name, "-n", namespace), "stdout")

    def printed(self, pod, wanted):
        """As the container runtime writes it: time, stream, "F" for a whole line, text. `kubectl logs` wants a node with
        an address other than this machine's own."""
        about = pod["metadata"]
        log = Path(f"/var/log/pods/{about['namespace']}_{about['name']}_{about['uid']}/main/0.log")
        if not log.exists():
            raise Failed(f"{about['name']} did not start: {pod['status'].get('message')}")
        lines = (line.split(" ", 3) for line in log.read_text().splitlines())
        return "".join(text + "\n" for _, stream, _, text in lines if stream == wanted)

    def events(self, name):
        return [e["message"] for e in self.get("events", "--field-selector", f"involvedObject.name={name}")["items"]]

    def remove(self, *names):
        self.kubectl("delete", "pod", "--wait=true", *names)

    def empty(self):
        self.kubectl("delete", "pods", "--all", "--all-namespaces", "--wait=true")
        await_that(lambda: self.podman.leases() == [] and self.sessions() == [], "no pod is left")

    def capacity(self):
        items = self.get("nodes")["items"]
        return int(items[0]["status"]["allocatable"].get(MEMORY, 0)) if items else 0

    def label(self):
        return self.get("node", self.node)["metadata"]["labels"].get("tandem.dev/gpu-memory-free")

    def sessions(self):
        return self.card.sessions()

    def container(self, name):
        await_that(lambda: self.phase(name) == "Running", f"{name} runs")
        return self.get("pod", name)["status"]["containerStatuses"][0]["containerID"].split("//")[1]


# ---- Checks. Each leaves no pod, and says what it saw.


def overflow(cluster):
    """Two pods that together want more than the GPU has, at once; both print what a run outside prints."""
    for name in ("anna", "ben"):
        cluster.run(name, JOBS["short"], 4)
    results = [cluster.result(name) for name in ("anna", "ben")]
    cluster.remove("anna", "ben")
    await_that(lambda: cluster.podman.leases() == [], "no lease is left")
    return {"ok": results == [cluster.expected["short"]] * 2}


def turns(cluster):
    """The same on one GPU, with limits that the plugin told the container runtime."""
    for name in ("anna", "ben"):
        cluster.run(name, LONG, 5)
    await_that(lambda: len(cluster.sessions()) == 2, "both are on the GPU")
    await_that(lambda: len(cluster.card.handovers()) > 5, "they take turns")
    seen = sorted((s["gpu"], s["limit_bytes"] >> 20) for s in cluster.sessions())
    cluster.remove("anna", "ben")
    await_that(lambda: cluster.sessions() == [] and cluster.podman.leases() == [], "nothing is left of them")
    return {"ok": seen == [(0, 50), (0, 50)], "gpu_and_limit_mib": seen}


def fragments(cluster):
    """3 + 3 units free are not 4: the pod waits, says why, and runs when there is room."""
    for name in ("anna", "ben"):
        cluster.run(name, LONG, 7)
    await_that(lambda: cluster.label() == "3-3", "both have their units")
    cluster.run("carl", JOBS["short"], 4)
    why = await_that(lambda: [e for e in cluster.events("carl") if "no GPU has 4" in e], "an event says why carl waits")
    cluster.remove("anna")
    text = cluster.result("carl")
    cluster.remove("ben", "carl")
    return {"ok": text == cluster.expected["short"], "event": why[0]}


def restarts(cluster):
    """The kubelet is restarted and the plugin killed, while a pod computes; another one starts afterwards."""
    cluster.run("anna", LONG, 5)
    await_that(lambda: len(cluster.sessions()) == 1, "anna is on the GPU")
    before = cluster.sessions()[0]["id"]
    cluster.end("kubelet")
    cluster.start_kubelet()
    await_that(lambda: cluster.capacity() == 20, "the plugin has registered again")
    cluster.end("plugin", signal.SIGKILL)
    await_that(lambda: cluster.capacity() == 0, "the node offers nothing while the plugin is gone")
    cluster.start_plugin()
    await_that(lambda: cluster.capacity() == 20, "the plugin has registered again")
    cluster.run("ben", JOBS["short"], 5)
    text = cluster.result("ben")
    same = [s["id"] for s in cluster.sessions()] == [before]
    cluster.remove("anna", "ben")
    return {"ok": same and text == cluster.expected["short"], "ran_on": same}


def detach(cluster):
    """A pod loses its GPU and gets it back while it computes."""
    cluster.run("anna", JOBS["paused"], 5)
    await_that(lambda: len(cluster.sessions()) == 1, "anna is on the GPU")
    name = cluster.container("anna")[:12]
    cluster.card.tandem("detach", name)
    seen = [(s["state"], s["resident_bytes"]) for s in cluster.sessions()]
    cluster.card.tandem("attach", name)
    text = cluster.result("anna")
    cluster.remove("anna")
    return {"ok": seen == [("suspended", 0)] and text == cluster.expected["paused"], "detached": seen}


def webhook(cluster):
    """Pods written for KAI, through the API server's admission: by memory in MiB, and by a fraction."""
    hook = yaml.safe_load((MANIFESTS / "webhook.yaml").read_text())
    bundle = base64.b64encode(cluster.certificates.ca.read_bytes()).decode()
    hook["webhooks"][0]["clientConfig"] = {"url": f"https://127.0.0.1:{EXTENDER}/mutate", "caBundle": bundle}
    cluster.make(hook)
    cluster.make({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kai", "labels": {"tandem.dev/kai": "true"}}})
    found = {}
    for name, annotations in (("memory", {"gpu-memory": "41"}), ("fraction", {"gpu-fraction": "0.5"})):
        # The API server takes a moment to read new hooks.
        def changed(name=name, annotations=annotations):
            cluster.kubectl("delete", "pod", "-n", "kai", "--ignore-not-found", name)
            cluster.run(name, JOBS["short"], annotations=annotations, namespace="kai", scheduler="kai-scheduler")
            pod = cluster.get("pod", name, "-n", "kai")["spec"]
            return pod["schedulerName"] == "default-scheduler" and pod
        pod = await_that(changed, "the webhook changes the pod")
        found[name] = int(pod["containers"][0]["resources"]["limits"][MEMORY])
        found[f"{name}_equal"] = cluster.result(name, "kai") == cluster.expected["short"]
    cluster.kubectl("delete", "namespace", "kai", "--wait=false")
    cluster.kubectl("delete", "mutatingwebhookconfigurations", hook["metadata"]["name"])
    return {"ok": found == {"memory": 5, "memory_equal": True, "fraction": 5, "fraction_equal": True}, **found}


def refused(cluster):
    """An image with musl: the pod's event says why it does not start."""
    cluster.run("anna", JOBS["short"], 4, image=MUSL)
    find = lambda: [e for e in cluster.events("anna") if "tandem: this image uses musl" in e]
    why = await_that(find, "an event says why anna does not start")
    cluster.remove("anna")
    return {"ok": True, "event": why[0][-160:]}


def many(cluster):
    """Forty short pods at once."""
    begin = time.monotonic()
    names = [f"pod-{i}" for i in range(40)]
    for name in names:
        cluster.run(name, train("4M", 2), 2)
    ended = lambda: all(p["status"].get("phase") in ("Succeeded", "Failed") for p in cluster.get("pods")["items"])
    await_that(ended, "all have ended")
    pods = cluster.get("pods")["items"]
    succeeded = sum(p["status"]["phase"] == "Succeeded" for p in pods)
    seconds = round(time.monotonic() - begin, 1)
    why = sorted({cluster.printed(p, "stderr").strip() for p in pods if p["status"]["phase"] == "Failed"})
    cluster.remove(*names)
    await_that(lambda: cluster.podman.leases() == [] and cluster.label() == "10-10", "nothing is left of them")
    return {"ok": succeeded == 40, "seconds": seconds, "why": why}


CHECKS = (overflow, turns, fragments, restarts, detach, webhook, refused, many)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("checks", nargs="*", metavar="CHECK", help=" ".join(check.__name__ for check in CHECKS))
    args = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("needs root")
    if missing := [name for name in PROGRAMS if not os.access(args.bin / name, os.X_OK)]:
        parser.error(f"{args.bin} has no {', '.join(missing)}: docs/testing.md says how to get them")
    if KUBELET.exists():
        parser.error(f"{KUBELET} exists: this machine may be a node already")
    if unknown := set(args.checks) - {check.__name__ for check in CHECKS}:
        parser.error(f"no check is called {', '.join(sorted(unknown))}")
    cluster = Cluster(args.bin.resolve())
    failed = False
    try:
        cluster.begin()
        for check in CHECKS:
            if args.checks and check.__name__ not in args.checks:
                continue
            try:
                found = check(cluster)
            except (Failed, AssertionError, KeyError) as why:
                found = {"ok": False, "why": repr(why)}
                cluster.empty()
            failed = failed or not found["ok"]
            print(json.dumps({"check": check.__name__, **found}), flush=True)
    except KeyboardInterrupt:
        failed = 130
    finally:
        if args.keep:
            print(f"all is left in {cluster.folder}", flush=True)
            os._exit(failed)
        with contextlib.suppress(Failed, AssertionError):
            cluster.empty()
        cluster.cleanup.close()
    sys.exit(failed)


if __name__ == "__main__":
    main()
