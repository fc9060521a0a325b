"""A Slurm cluster on this machine, for tests: slurmctld and a slurmd for each node, from Debian's packages.

Each node has software GPUs and a daemon of its own. One shard stands for a MiB.
"""

import contextlib
import getpass
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

import users
from harness import BUILD, SOURCE, Card, wait_until

SLURM_PLUGINS = "/usr/lib/x86_64-linux-gnu/slurm-wlm"
PLACEHOLDERS = ("/dev/full", "/dev/random", "/dev/zero", "/dev/null")  # gres.conf wants a device for each GPU
SHARED = 54  # MiB of a GPU that can be shared
SHARDS = 2 * SHARED

CONF = """
ClusterName=tandem
SlurmctldHost=localhost
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={root}/state
SlurmctldPidFile={root}/slurmctld.pid
SlurmdSpoolDir={root}/%n/spool
SlurmdPidFile={root}/%n/slurmd.pid
AuthType=auth/none
CredType=cred/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
PrologFlags=Alloc
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SlurmdParameters=config_overrides
GresTypes=gpu,shard
JobSubmitPlugins={submit}
PluginDir={plugins}
PlugStackConfig={root}/plugstack.conf
ReturnToService=2
KillWait=5
SchedulerParameters=sched_interval=1,batch_sched_delay=0
{nodes}
PartitionName=main Nodes=ALL Default=YES
PartitionName=background Nodes=ALL
"""

LUA = """
local tandem = dofile("{source}/integrations/slurm/tandem.lua")
tandem.shard = 2 ^ 20
tandem.largest = {largest}
tandem.classes = {{production = {{partition = {{"main"}}}}}}
function slurm_job_submit(job, partitions, uid) return tandem.submit(job) end
function slurm_job_modify(job, record, partitions, uid) return tandem.modify(job, uid) end
return slurm.SUCCESS
"""


def free_ports(count):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


class Node:
    """A node's software GPU, its daemon and its slurmd."""

    def __init__(self, cluster, name):
        self.cluster, self.name, self.slurmd = cluster, name, None
        root = cluster.root / name
        root.mkdir()
        self.card = Card(root, vram="64M", context="2M", devices=cluster.devices)
        self.card.env["TANDEM_SOFT_SHARED"] = "1"
        for directory in (root, self.card.runtime, self.card.soft):
            directory.chmod(0o755)
        self.start_daemon()

    def start_daemon(self):
        self.card.start_daemon(*(["--everybody"] if os.geteuid() == 0 else []))

    def kill_daemon(self):
        self.card.daemon.kill()
        self.card.daemon.wait()

    def start(self):
        # A daemon under another name would be in the way: -D keeps it our child.
        log = open(self.cluster.root / self.name / "slurmd.log", "a")  # noqa: SIM115
        self.slurmd = subprocess.Popen(["slurmd", "-D", "-N", self.name], env=self.cluster.env, stdout=log, stderr=log)
        log.close()

    def stop(self):
        end(self.slurmd)

    def leases(self):
        return json.loads(self.card.tandem("lease", "list", "--json"))["leases"]


def end(process, number=signal.SIGTERM):
    if process is None or process.poll() is not None:
        return
    process.send_signal(number)
    try:
        process.wait(timeout=20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Slurm:
    def __init__(self, nodes=("n1", "n2", "n3"), devices="gpu0", lua=True, largest=SHARED):
        self.root = Path(tempfile.mkdtemp(prefix="tandem-slurm-", dir="/tmp"))
        self.root.chmod(0o755)
        self.devices, self.slurmctld, self.started = devices, None, []
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("TANDEM_", "SLURM", "LD_"))}
        self.env["SLURM_CONF"] = str(self.root / "slurm.conf")
        programs = users.install(self.root / "tandem")  # where all users can reach them
        self.train, self.plugin = programs / "train", self.root / "tandem" / "lib" / "spank_tandem.so"
        shutil.copy(BUILD / "lib" / self.plugin.name, self.plugin)
        self.nodes = {}
        for name in nodes:
            self.nodes[name] = Node(self, name)
        self.write_configuration(lua, largest)

    def write_configuration(self, lua, largest):
        port, *node_ports = free_ports(1 + len(self.nodes))
        gpus = len(self.devices.split(","))
        lines = [
            f"NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={each} CPUs=32 "
            f"Gres=gpu:{gpus},shard:{SHARDS * gpus}"
            for name, each in zip(self.nodes, node_ports)
        ]
        (self.root / "state").mkdir()
        self.write("slurm.conf", CONF.format(
            port=port, user=getpass.getuser(), root=self.root, plugins=SLURM_PLUGINS, nodes="\n".join(lines),
            submit="lua" if lua else "throttle",
        ))  # fmt: skip
        gres = ["AutoDetect=off"]
        for name in self.nodes:
            for device in PLACEHOLDERS[:gpus]:
                gres += [f"NodeName={name} Name=gpu File={device}",
                         f"NodeName={name} Name=shard Count={SHARDS} File={device}"]  # fmt: skip
        self.write("gres.conf", "\n".join(gres))
        self.write("cgroup.conf", "CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")
        self.write("job_submit.lua", LUA.format(source=SOURCE, largest=largest))
        words = {"TANDEM_GPU": "soft", "TANDEM_RUNTIME_DIR": f"{self.root}/%n/run", "TANDEM_SOFT_DIR": f"{self.root}/%n/soft"}
        one = next(iter(self.nodes.values())).card.env
        for name in ("TANDEM_SOFT_VRAM", "TANDEM_SOFT_CONTEXT", "TANDEM_SOFT_PCIE", "TANDEM_SOFT_DEVICES",
                     "TANDEM_SOFT_SHARED"):  # fmt: skip
            words[name] = one[name]
        environment = " ".join(f"env.{name}={value}" for name, value in words.items())
        self.write("plugstack.conf", f"required {self.plugin} oversubscribe=2 class.background=batch "
                   f"account-class.lab=opportunistic account-share.lab=3 {environment}\n")

    def write(self, name, text):
        (self.root / name).write_text(text)

    def change_conf(self, changes, more=""):
        """Replaces words of slurm.conf and adds lines to it."""
        conf = (self.root / "slurm.conf").read_text()
        for old, new in changes.items():
            assert old in conf, old
            conf = conf.replace(old, new)
        self.write("slurm.conf", conf + more)

    def add_plugin_words(self, words):
        line = (self.root / "plugstack.conf").read_text().strip()
        self.write("plugstack.conf", f"{line} {words}\n")

    # ---- its daemons

    def start(self):
        self.start_controller()
        for node in self.nodes.values():
            node.start()
        self.settle()

    def start_controller(self):
        log = open(self.root / "slurmctld.log", "a")  # noqa: SIM115
        self.slurmctld = subprocess.Popen(["slurmctld", "-D"], env=self.env, stdout=log, stderr=log)
        log.close()

    def stop_controller(self):
        end(self.slurmctld)

    def restart_controller(self):
        self.stop_controller()
        self.start_controller()

    def settle(self):
        """No job is left, nor a lease, and each node takes a job: an idle node need not have registered."""
        for node in self.nodes.values():
            if node.card.ask("status") is None:
                node.start_daemon()
        self.command("scancel", "--user", getpass.getuser(), check=False)
        wait_until(lambda: self.states() == {"idle"}, self.slurmctld, "all nodes are idle")
        for name, node in self.nodes.items():
            wait_until(lambda name=name: self.command("srun", "-w", name, "-I5", "true", check=False)[0] == 0,
                       node.slurmd, f"{name} takes a job")  # fmt: skip
            wait_until(lambda node=node: node.leases() == [], node.slurmd, f"{name} has no lease")
        wait_until(lambda: self.queue() == [], self.slurmctld, "no job is left")

    def states(self):
        code, out, _ = self.command("sinfo", "-h", "-N", "-p", "main", "-o", "%t", check=False)
        return set(out.split()) if code == 0 else None

    def close(self):
        with contextlib.suppress(AssertionError):
            if self.slurmctld is not None and self.slurmctld.poll() is None:
                self.command("scancel", "--user", getpass.getuser(), check=False)
                wait_until(lambda: self.queue() == [], self.slurmctld, "all jobs have ended", patience=30)
        for process in self.started:
            end(process, signal.SIGKILL)
        for node in self.nodes.values():
            node.stop()
        end(self.slurmctld)
        for node in self.nodes.values():
            node.card.close()
        shutil.rmtree(self.root, ignore_errors=True)

    # ---- its commands

    def spawn(self, *argv, env=None, **options):
        process = subprocess.Popen(
            [str(a) for a in argv], env={**self.env, **(env or {})}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, cwd=self.root, **options,
        )  # fmt: skip
        self.started.append(process)
        return process

    def command(self, *argv, check=True, **options):
        """(exit status, output, errors) of a command that ends by itself."""
        process = self.spawn(*argv, **options)
        out, err = process.communicate(timeout=300)
        assert not check or process.returncode == 0, err
        return process.returncode, out, err

    def srun(self, *argv, **options):
        return self.spawn("srun", *argv, **options)

    def sbatch(self, script, *flags):
        """Submits a script; the job's number."""
        path = self.root / "batch.sh"
        path.write_text(f"#!/bin/bash\n{script}\n")
        return self.command("sbatch", "--parsable", *flags, path)[1].strip()

    def queue(self):
        """(job, state, reason) of each job."""
        out = self.command("squeue", "-h", "-r", "-o", "%i|%T|%r")[1]
        return [tuple(line.split("|")) for line in out.splitlines()]

    def job_of(self, process):
        """The only job in the queue."""
        jobs = wait_until(self.queue, process, "the job is in the queue")
        assert len(jobs) == 1
        return jobs[0][0]

    def suspend(self, process, node):
        """Suspends the only job until its memory has left the GPU; its number."""
        number = self.job_of(process)
        self.stop_off_gpu(process, node, lambda: self.command("scontrol", "suspend", number),
                          lambda: self.command("scontrol", "resume", number))  # fmt: skip
        return number

    def stop_off_gpu(self, process, node, stop, let_go):
        """Has Slurm stop the only session of the node, until its memory has left the GPU before it is stopped.

        Slurm 22.05 stops a job's processes two seconds after SIGTSTP. On a busy machine memory may still be there.
        """
        pid = node.card.sessions()[0]["pid"]
        for _ in range(10):
            stop()
            wait_until(lambda: self.is_stopped(pid), process, "Slurm stops it")
            session = next(each for each in node.card.sessions() if each["pid"] == pid)
            if session["state"] == "suspended" and session["resident_bytes"] == 0:
                return
            let_go()
            wait_until(lambda: not self.is_stopped(pid), process, "Slurm lets it go on")
        raise AssertionError(f"its memory stayed on the GPU: {session}")

    def is_stopped(self, pid):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    def sessions(self):
        return [{**s, "node": node.name} for node in self.nodes.values() for s in node.card.sessions()]
