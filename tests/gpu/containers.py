#!/usr/bin/env python3
"""Containers for check.py on this machine's GPU; prints what they did as JSON.

    python3 containers.py --build BUILD --memory SIZE [--soft] -- PROGRAM...

Needs root, Podman and overlay file systems. A container's files are this machine's, with what it writes kept
apart. Two containers with SIZE of the GPU each run PROGRAM at once; one of them is detached and attached in
its work. A third starts without a device of Tandem's, a fourth without NVIDIA's, too; `tandem attach` gives
each a GPU, and PROGRAM runs in it.
PROGRAM's last line has to be that of a run outside, without Tandem; of JSON only the field `digests`.
--soft: on the software GPU, which needs no device of NVIDIA's.
"""

import argparse
import contextlib
import glob
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
PATIENCE_S = 150
CDI = Path("/var/run/cdi")
KIND = "gpucheck.tandem.dev/gpu"
MIB = 1 << 20
LIMIT = """import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
size, context, device = ctypes.c_size_t(), ctypes.c_void_p(), ctypes.c_int()
assert cuda.cuInit(0) == 0 and cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
assert cuda.cuDeviceTotalMem_v2(ctypes.byref(size), device) == 0
print(size.value)"""


class Failed(Exception):
    pass


def nvidia_specification(kind):
    """Devices and libraries of NVIDIA's, as its own generator would list them; the libraries are in the files already."""
    nodes = sorted(n for n in glob.glob("/dev/nvidia*") if not os.path.isdir(n))
    mounts = [
        {"hostPath": path, "containerPath": path, "options": ["ro", "rbind", "nosuid", "nodev"]}
        for path in ("/usr/local/nvidia",) if os.path.ismount(path)
    ]  # fmt: skip
    edits = {"deviceNodes": [{"path": node} for node in nodes], "mounts": mounts}
    return {"cdiVersion": "0.5.0", "kind": kind, "devices": [{"name": "all", "containerEdits": edits}]}


def result(text):
    """What a program found."""
    last = ["", *text.strip().splitlines()][-1]
    return json.loads(last)["digests"] if last.startswith("{") else last


class Containers:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.build = Path(args.build).resolve()
        self.cleanup = contextlib.ExitStack()
        self.soft = str(self.build / "lib" / "tandem" / "soft")
        self.env = {**os.environ, "TANDEM_RUNTIME_DIR": str(folder / "run"), "TANDEM_STATE_DIR": str(folder),
                    "TANDEM_GPU": "soft" if args.soft else "cuda"}  # fmt: skip
        if args.soft:
            self.env |= {"TANDEM_SOFT_DIR": str(folder / "soft"), "TANDEM_SOFT_SHARED": "1", "LD_LIBRARY_PATH": self.soft}
            (folder / "soft").mkdir()
        (folder / "run").mkdir()
        self.podman = ["podman", "--root", folder / "storage", "--runroot", folder / "state", "--storage-driver", "vfs",
                       "--runtime", "runc", "--cgroup-manager", "cgroupfs", "--log-level", "error"]  # fmt: skip
        self.outside = [] if args.soft else list(self.found_outside())
        self.nvidia = [] if args.soft else ["--device=gpucheck.nvidia.com/gpu=all"]

    def found_outside(self):
        """Flags for what programs need of this machine that is in no container's files."""
        for path in {str(self.build), str(HERE.parent.parent), sys.prefix}:
            if os.stat(path).st_dev != os.stat("/").st_dev:
                yield f"--volume={path}:{path}"
        if "LD_LIBRARY_PATH" in os.environ:
            yield f"--env=LD_LIBRARY_PATH={os.environ['LD_LIBRARY_PATH']}"

    def own(self):
        """The environment of programs that are not Tandem's."""
        return {k: v for k, v in os.environ.items() if not k.startswith("TANDEM_")}

    def call(self, argv, env=None):
        done = subprocess.run(list(map(str, argv)), env=env or self.own(), capture_output=True, text=True, timeout=PATIENCE_S)
        if done.returncode != 0:
            raise Failed(f"{' '.join(map(str, argv))} ended with {done.returncode}: {done.stdout[-600:]} {done.stderr[-600:]}")
        return done.stdout

    def tandem(self, *words):
        return self.call([self.build / "bin" / "tandem", *words], self.env)

    def files(self, name):
        """The machine's files, for one container."""
        kept, seen = self.folder / "kept" / name, self.folder / "files" / name
        for folder in (kept / "upper", kept / "work", seen):
            folder.mkdir(parents=True)
        options = f"lowerdir=/,upperdir={kept / 'upper'},workdir={kept / 'work'}"
        self.call(["mount", "-t", "overlay", "overlay", "-o", options, seen])
        self.cleanup.callback(self.call, ["umount", seen])
        return seen

    def start(self, name, program, *flags):
        """A container with NVIDIA's device."""
        return self.start_bare(name, program, *self.nvidia, *flags)

    def start_bare(self, name, program, *flags):
        argv = [*self.podman, "run", "--rm", f"--name={name}", f"--hostname={name}", "--network=none", *self.limits(),
                *self.outside, *flags, f"--volume={self.folder}:{self.folder}", "--rootfs", self.files(name), *program]  # fmt: skip
        log = open(self.folder / f"{name}.out", "w+")
        process = subprocess.Popen(list(map(str, argv)), env=self.own(), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        self.cleanup.callback(self.remove, name)
        return process, log

    def limits(self):
        """Podman's own are above this machine's, which may not allow to raise them."""
        for name, number in (("nofile", resource.RLIMIT_NOFILE), ("nproc", resource.RLIMIT_NPROC)):
            most = min(n for n in (resource.getrlimit(number)[1], 20000) if n >= 0)
            yield f"--ulimit={name}={most}:{most}"

    def remove(self, name):
        with contextlib.suppress(Failed):
            self.call([*self.podman, "rm", "--force", "--time", "0", name])

    def finished(self, started):
        process, log = started
        process.wait(timeout=PATIENCE_S)
        log.seek(0)
        text = log.read()
        if process.returncode != 0:
            raise Failed(f"a container ended with {process.returncode}: {text[-1000:]}")
        return result(text)

    def leases(self):
        return json.loads(self.tandem("lease", "list", "--json"))["leases"]

    def sessions(self):
        return json.loads(self.tandem("ps", "--json"))["sessions"]

    def wait(self, condition, what):
        until = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > until:
                raise Failed(f"waited {PATIENCE_S} s: {what}")
            time.sleep(0.1)

    def start_daemon(self):
        CDI.mkdir(parents=True, exist_ok=True)
        argv = [self.build / "bin" / "tandemd", "--everybody"]
        log = open(self.folder / "tandemd.out", "w")
        daemon = subprocess.Popen(list(map(str, argv)), env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.cleanup.callback(daemon.wait)
        self.cleanup.callback(daemon.terminate)
        self.wait(lambda: json.loads(self.tandem("status", "--json"))["pid"] is not None, "the daemon answers")
        self.specify("tandem-gpucheck.json", None)
        if not self.args.soft:
            self.specify("nvidia-gpucheck.json", nvidia_specification("gpucheck.nvidia.com/gpu"))

    def specify(self, name, specification):
        path = CDI / name
        self.cleanup.callback(path.unlink, missing_ok=True)
        if specification is None:
            self.tandem("cdi", "generate", "--kind", KIND, "--size", self.args.memory, "--output", path)
        else:
            path.write_text(json.dumps(specification))

    def device(self, of):
        names = [d["name"] for d in json.loads((CDI / "tandem-gpucheck.json").read_text())["devices"]]
        return f"--device={KIND}={next(n for n in names if re.fullmatch(of, n))}"

    # What is looked at.

    def run(self):
        report = {}
        outside = {**self.own(), "LD_LIBRARY_PATH": self.soft} if self.args.soft else self.own()
        if self.args.soft:
            outside |= {"TANDEM_SOFT_DIR": str(self.folder / "soft")}
        expected = result(self.call(self.args.program, outside))
        self.start_daemon()
        report["limit_mib"] = self.limit()
        report["two_equal"], report["detached"] = self.two(expected)
        self.start("carl", ["sleep", "1000"])
        report["attached_equal"], report["attached"] = self.attached("carl", expected)
        self.start_bare("dora", ["sleep", "1000"])
        report["bare_equal"], report["bare"] = self.attached("dora", expected)
        self.wait(lambda: self.leases() == [], "no lease is left")
        report["cgroup"] = "v2" if os.path.exists("/sys/fs/cgroup/cgroup.controllers") else "v1"
        return report

    def limit(self):
        """Of the memory that CUDA tells in a container with a size."""
        return int(self.finished(self.start("small", [sys.executable, "-c", LIMIT], self.device("0-.*")))) // MIB

    def two(self, expected):
        """Whether both end right, and the MiB that a detached container keeps on the GPU."""
        both = [self.start(name, self.args.program, self.device("0-.*")) for name in ("anna", "ben")]
        self.wait(lambda: any(s["resident_bytes"] > 0 for s in self.sessions()), "one works on the GPU")
        self.wait(lambda: len(self.sessions()) == 2 or both[0][0].poll() is not None, "both are sessions")
        begin = time.monotonic()
        self.tandem("detach", "anna")
        left = [s["resident_bytes"] // MIB for s in self.sessions() if s.get("lease") and s["suspended"]]
        took = time.monotonic() - begin
        leases = len(self.leases())
        self.tandem("attach", "anna")
        found = [self.finished(one) for one in both]
        return [f == expected for f in found], {"left_mib": left, "seconds": round(took, 3), "leases": leases}

    def attached(self, name, expected):
        """The same of a container that runs without a device of Tandem's."""
        self.wait(lambda: self.running(name), "the container runs")
        told = self.tandem("attach", name, "--memory", self.args.memory)
        inside = [f"--env={value}" for value in re.findall(r"--env (\S+)", told)]  # of the software GPU
        argv = [*self.podman, "exec", *inside, name, *self.args.program]
        program = subprocess.Popen(list(map(str, argv)), env=self.own(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        seen = []

        def shared():
            seen[:] = [[s["name"], s.get("lease"), s["limit_bytes"] // MIB] for s in self.sessions()]
            return seen or program.poll() is not None

        self.wait(shared, "its program is a session")
        out, _ = program.communicate(timeout=PATIENCE_S)
        if program.returncode != 0:
            raise Failed(f"a program in an attached container ended with {program.returncode}: {out[-1000:]}")
        self.remove(name)
        return result(out) == expected, seen

    def running(self, name):
        with contextlib.suppress(Failed):
            return self.call([*self.podman, "container", "inspect", "-f", "{{.State.Running}}", name]).strip() == "true"
        return False


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", required=True)
    parser.add_argument("--memory", required=True, help="of the GPU, for each container")
    parser.add_argument("--soft", action="store_true", help="on the software GPU")
    parser.add_argument("program", nargs="+")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tandem-gpu-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        containers = Containers(args, Path(folder))
        with containers.cleanup:
            try:
                report = containers.run()
            except Failed as failed:
                report = {"failed": str(failed)}
            log = Path(folder, "tandemd.out")
            if "failed" in report and log.exists():
                report["daemon"] = log.read_text()[-600:]
            print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
