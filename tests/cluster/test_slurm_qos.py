"""The QOS of Slurm's jobs, which slurmdbd keeps in a database. Neither is among Tandem's packages: it skips without."""

import contextlib
import os
import shutil
import subprocess

import pytest

from harness import wait_until
from slurm_cluster import Slurm, end, free_ports

NEEDED = ("slurmctld", "slurmdbd", "mariadbd", "mariadb-install-db")
MISSING = [name for name in NEEDED if shutil.which(name) is None]
pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=f"{', '.join(MISSING)} missing: packages slurmdbd and mariadb-server"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
]

DATABASE_CONF = """
AuthType=auth/none
DbdHost=localhost
DbdPort={port}
SlurmUser=root
PidFile={root}/slurmdbd.pid
LogFile={root}/slurmdbd.log
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={database_port}
StorageUser=root
StorageLoc=slurm
PluginDir={plugins}
"""


class SlurmWithAccounts(Slurm):
    """One node. The QOS `high` and the account `lab` have a class and a share of their own, `normal` and `physics` none."""

    def start(self):
        port, database_port = free_ports(2)
        conf = (self.root / "slurm.conf").read_text()
        plugins = next(line.split("=")[1] for line in conf.splitlines() if line.startswith("PluginDir="))
        self.write("slurmdbd.conf", DATABASE_CONF.format(
            port=port, database_port=database_port, root=self.root, plugins=plugins))  # fmt: skip
        (self.root / "slurmdbd.conf").chmod(0o600)
        storage = f"accounting_storage/slurmdbd\nAccountingStoragePort={port}\nAccountingStorageEnforce=associations,qos"
        self.change_conf({"accounting_storage/none": storage})
        self.add_plugin_words("qos-class.high=production qos-share.high=2 class.main=batch")
        self.start_database(database_port)
        self.dbd = self.serve("slurmdbd", "-D")
        tell = lambda *words: self.command("sacctmgr", "-i", *words, check=False)[0] == 0
        wait_until(lambda: tell("show", "cluster"), self.dbd, "slurmdbd answers")
        for words in (["cluster", "tandem"], ["qos", "high"], ["account", "lab,physics"],
                      ["user", "root", "account=lab,physics", "qos=normal,high"]):  # fmt: skip
            assert tell("add", *words), words
        super().start()

    def serve(self, *argv):
        log = open(self.root / f"{argv[0]}.out", "a")  # noqa: SIM115
        process = subprocess.Popen([str(a) for a in argv], env=self.env, stdout=log, stderr=log)
        log.close()
        return process

    def start_database(self, port):
        data = self.root / "database"
        self.command("mariadb-install-db", "--no-defaults", "--user=root", f"--datadir={data}", "--auth-root-authentication-method=normal")
        self.database = self.serve("mariadbd", "--no-defaults", "--user=root", f"--datadir={data}", f"--port={port}",
                                   "--bind-address=127.0.0.1", f"--socket={data}/socket", "--skip-grant-tables")  # fmt: skip
        wait_until((data / "socket").exists, self.database, "the database answers")

    def close(self):
        # Slurm's own daemons before those that they tell.
        with contextlib.suppress(AssertionError):
            self.command("scancel", "--user", "root", check=False)
        for node in self.nodes.values():
            node.stop()
        end(self.slurmctld)
        for process in ("dbd", "database"):
            end(getattr(self, process, None))
        super().close()


@pytest.fixture(scope="module")
def slurm():
    with contextlib.closing(SlurmWithAccounts(nodes=("n1",))) as cluster:
        cluster.start()
        yield cluster


@pytest.mark.parametrize(
    "account, flags, expected",
    [
        ("physics", [], ("batch", "")),
        ("physics", ["--qos=normal"], ("batch", "")),
        ("physics", ["--qos=high"], ("production", "2")),
        ("lab", [], ("opportunistic", "3")),
        ("lab", ["--qos=high"], ("production", "2")),
        ("lab", ["--qos=high", "--gpu-class=interactive", "--gpu-share=0.5"], ("interactive", "0.5")),
    ],
)
def test_class_and_share_are_the_jobs_then_its_qos_then_its_account_then_its_partition(slurm, tmp_path, account, flags, expected):
    go = tmp_path / "go"
    job = slurm.sbatch(f"until [ -e {go} ]; do sleep 0.05; done", "-A", account, "--gpu-mem=10M", *flags, "-o", tmp_path / "out")
    node = slurm.nodes["n1"]
    lease = wait_until(lambda: next(iter(node.leases()), None), node.slurmd, "the job has a lease")
    go.touch()
    assert (lease["class"], lease["compute_share"], lease["project"]) == (*expected, account)
    wait_until(lambda: node.leases() == [] and slurm.queue() == [], node.slurmd, f"job {job} has ended")


def test_a_qos_that_the_user_does_not_have_is_refused(slurm):
    code, _, err = slurm.command("srun", "-A", "lab", "--gpu-mem=10M", "--qos=none", "true", check=False)
    assert code != 0 and "Invalid qos" in err
