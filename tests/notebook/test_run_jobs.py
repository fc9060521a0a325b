"""`tandem notebook submit`, `jobs`, `logs`, `cancel` and `wait`. Real kernels."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess

import pytest
from run_fixtures import BLOCK, DEAF, PATIENCE_S, SOURCE, desk, ended, gpu_desk, wait_until

__all__ = ["desk", "gpu_desk"]
COMMANDS = ["notebook run", "notebook submit", "jobs", "logs", "cancel", "wait"]


def test_a_job_outlives_its_terminal_and_the_next_one_waits(desk):
    desk.notebook("a.ipynb", "#SBATCH --mem=1G\nprint('one')", BLOCK)
    desk.notebook("b.ipynb", "1/0")
    first = desk.submit("a.ipynb", "word")
    second = desk.submit("b.ipynb")
    desk.until("begun")
    record = desk.jobs()[first]
    worker = record["pid"]
    assert os.getsid(worker) == worker  # no terminal of another session can reach it
    os.kill(worker, signal.SIGHUP)
    assert (record["state"], record["cell"], record["cells"]) == ("running", 2, 2)
    assert record["sbatch"] == ["#SBATCH --mem=1G"] and record["settings"]["args"] == ["word"]
    assert desk.jobs()[second]["state"] == "queued"
    table = desk.tandem("jobs")[0].splitlines()
    assert table[0].split() == ["JOB", "NAME", "STATE", "CELL", "SINCE", "WAITED"]
    assert table[1].split()[:4] == ["1", "a", "running", "2/2"]
    assert table[2].split()[:4] == ["2", "b", "queued", "0/1"]
    again = ["notebook", "submit", "--unshared", "a.ipynb"]
    assert "job 1 saves into" in desk.tandem(*again, expect=2)[1]
    assert "job 1 saves into" in desk.run("a.ipynb", expect=2)[1]

    assert "job 1: cancelled" in desk.tandem("cancel", first)[1]
    assert desk.tandem("wait", first, expect=143)[1].startswith("tandem: job 1: cancelled")
    _, err = desk.tandem("wait", second, first, expect=143)
    assert "job 2: failed: cell 1 of 1 failed: ZeroDivisionError: division by zero" in err
    assert desk.tandem("wait", second, expect=1)
    log, _ = desk.tandem("logs", first)
    assert "cell 1 of 2\none\n" in log and "KeyboardInterrupt" in log
    assert desk.load("a.out.ipynb").metadata.tandem.state == "stopped"
    assert "job 1 has ended before: cancelled" in desk.tandem("cancel", first, expect=1)[1]


def test_logs_follow_until_the_end(desk):
    wait = "import os, time\nopen('begun', 'w')\nwhile not os.path.exists('go'): time.sleep(0.01)"
    desk.notebook("a.ipynb", f"print('early')\n{wait}\nprint('late')")
    number = desk.submit("a.ipynb")
    follower = desk.start("logs", "-f", number)
    seen = ""
    while "early" not in seen:
        line = follower.stdout.readline()
        assert line, seen
        seen += line
    desk.path("go").touch()
    out, err = follower.communicate(timeout=PATIENCE_S)
    assert "late\n" in out and follower.returncode == 0, err
    assert out.endswith(f"tandem: done; saved in {desk.path('a.out.ipynb')}\n")


def test_a_killed_job_is_lost_and_resumed(desk):
    desk.notebook("a.ipynb", "print('one')", BLOCK)
    number = desk.submit("a.ipynb")
    desk.until("begun")
    record = desk.jobs()[number]
    os.kill(record["pid"], signal.SIGKILL)
    assert "submit --resume 1` goes on" in desk.tandem("wait", number, expect=1)[1]
    wait_until(lambda: ended(record["kernel_pid"]), None, "the kernel ends, too")
    assert desk.jobs()[number]["state"] == "lost"
    out, _ = desk.tandem("jobs")
    assert "Job 1 is lost: its process ended in cell 2 of 2" in out
    assert desk.outputs("a.out.ipynb") == ["one\n", ""]

    desk.notebook("a.ipynb", "print('one')", "print('two')")
    again = desk.submit("--resume", number)
    assert desk.tandem("wait", again) == ("", "")
    assert desk.outputs("a.out.ipynb") == ["one\n", "two\n"]
    assert desk.jobs()[again]["resumes"] == number
    assert "is lost" not in desk.tandem("jobs")[0]
    err = desk.tandem("notebook", "submit", "--resume", again, expect=2)[1]
    assert "nothing to run" in err


def test_a_process_id_that_is_used_again_fools_no_command(desk):
    """The record of a lost job names a process that lives: this one."""
    desk.notebook("a.ipynb", BLOCK)
    number = desk.submit("a.ipynb")
    desk.until("begun")
    os.kill(desk.jobs()[number]["pid"], signal.SIGKILL)
    desk.tandem("wait", number, expect=1)
    path = desk.records / str(number) / "job.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "pid": os.getpid()}))
    assert desk.jobs()[number]["state"] == "lost"
    desk.tandem("cancel", number, expect=1)  # or this process would end


def test_submits_at_once_get_numbers_of_their_own_and_run_in_order(desk):
    names = [f"n{i}.ipynb" for i in range(3)]
    for name in names:
        desk.notebook(name, "import os\nopen('order', 'a').write(os.environ['TANDEM_JOB'])")
    submits = [desk.start("notebook", "submit", "--unshared", name) for name in names]
    numbers = [int(process.communicate(timeout=PATIENCE_S)[0]) for process in submits]
    assert sorted(numbers) == [1, 2, 3]
    assert desk.tandem("wait", *numbers) == ("", "")
    assert desk.path("order").read_text() == "123"


def test_a_queued_job_is_cancelled_and_now_does_not_queue(desk):
    desk.notebook("a.ipynb", BLOCK)
    desk.notebook("b.ipynb", "print('b')")
    first, second = desk.submit("a.ipynb"), desk.submit("b.ipynb")
    now = desk.submit("--now", "--output", "c.ipynb", "b.ipynb")
    assert desk.tandem("wait", "--timeout", "0.1", second, expect=124) == ("", "")
    assert desk.tandem("wait", now) == ("", "") and desk.outputs("c.ipynb") == ["b\n"]
    desk.tandem("cancel", second)
    assert desk.jobs()[second]["state"] == "cancelled" and not desk.path("b.out.ipynb").exists()
    assert desk.jobs()[first]["state"] == "running"


def test_cancel_ends_a_cell_that_ignores_it(desk):
    desk.notebook("a.ipynb", "print('one')", f"print('partly', flush=True)\n{DEAF}")
    number = desk.submit("a.ipynb")
    desk.until("begun")
    log = desk.records / str(number) / "log"
    wait_until(lambda: "partly" in log.read_text(), None, "the output has come")
    desk.tandem("cancel", "--grace", "0.5", number)
    assert desk.jobs()[number]["state"] == "cancelled"
    assert desk.outputs("a.out.ipynb") == ["one\n", "partly\n"]


def test_an_end_that_the_user_did_not_ask_for_is_a_failure(desk):
    """The system sends SIGTERM, too: at its shutdown."""
    desk.notebook("a.ipynb", BLOCK)
    number = desk.submit("a.ipynb")
    desk.until("begun")
    os.kill(desk.jobs()[number]["pid"], signal.SIGTERM)
    assert "job 1: failed: stopped by SIGTERM" in desk.tandem("wait", number, expect=143)[1]


def test_a_job_runs_the_notebook_as_it_was_submitted(desk):
    desk.notebook("a.ipynb", BLOCK)
    desk.notebook("b.ipynb", "print('old')")
    desk.notebook("c.ipynb", "print('old')")
    first = desk.submit("a.ipynb")
    copied, in_place = desk.submit("b.ipynb"), desk.submit("--in-place", "c.ipynb")
    desk.notebook("b.ipynb", "print('new')")
    desk.notebook("c.ipynb", "print('new')")
    desk.tandem("cancel", first)
    desk.tandem("wait", copied)
    assert desk.outputs("b.out.ipynb") == ["old\n"]
    assert "c.ipynb has changed since" in desk.tandem("wait", in_place, expect=2)[1]
    assert desk.load("c.ipynb").cells[0].source == "print('new')"


def test_a_job_that_waits_for_one_behind_it(desk):
    words = "[sys.executable, '-m', 'tandem', 'notebook', 'submit', '--unshared', 'b.ipynb']"
    waits = "[sys.executable, '-m', 'tandem', 'wait', number]"
    desk.notebook(
        "a.ipynb",
        f"import subprocess, sys\nnumber = subprocess.check_output({words}, text=True).strip()\n"
        f"print(subprocess.run({waits}, capture_output=True, text=True).stderr)",
    )
    desk.notebook("b.ipynb", "print('b')")
    number = desk.submit("a.ipynb")
    desk.tandem("wait", number)
    assert "job 2 waits for job 1, which runs this command" in desk.outputs("a.out.ipynb")[0]
    assert desk.tandem("wait", 2) == ("", "")


@pytest.mark.parametrize("words", ["wait 7", "cancel 7", "logs 7", "notebook submit --resume 7"])
def test_a_job_that_is_not_there(desk, monkeypatch, capsys, words):
    status, _, err = desk.call(monkeypatch, capsys, *words.split())
    assert status == 2 and "there is no job 7" in err


def test_bad_input_makes_no_job(desk, monkeypatch, capsys):
    status, _, err = desk.call(monkeypatch, capsys, "notebook", "submit", "none.ipynb")
    assert status == 2 and "cannot read" in err
    assert "No jobs." in desk.call(monkeypatch, capsys, "jobs")[1]
    assert not desk.records.exists()


@pytest.mark.parametrize("words", COMMANDS)
def test_help_has_examples(desk, monkeypatch, capsys, words):
    status, out, _ = desk.call(monkeypatch, capsys, *words.split(), "--help")
    assert status == 0 and "examples:\n  tandem" in out


def test_a_job_leaves_the_run_that_it_is_submitted_in(desk):
    desk.env.update(TANDEM_RUN="5", TANDEM_NAME="outer", LD_PRELOAD="/none/libtandem.so")
    names = ["TANDEM_RUN", "TANDEM_NAME", "LD_PRELOAD", "TANDEM_JOB"]
    desk.notebook("a.ipynb", f"import os\nprint([os.environ.get(name) for name in {names}])")
    submitted = desk.tandem("notebook", "submit", "--unshared", "--json", "a.ipynb")[0]
    assert json.loads(submitted)["job"] == 1
    ended = json.loads(desk.tandem("wait", "--json", 1)[0])
    assert (ended["state"], ended["exit_status"], ended["finished"]) == ("done", 0, 1)
    assert desk.outputs("a.out.ipynb") == ["[None, None, None, '1']\n"]


def page():
    return (SOURCE / "docs/notebook-jobs.md").read_text(encoding="utf-8")


def test_the_page_names_every_key_of_a_record_and_every_option(desk, monkeypatch, capsys):
    desk.notebook("a.ipynb", "1")
    number = desk.submit("a.ipynb")
    record = desk.jobs()[number]
    assert set(record) <= set(re.findall(r"`(\w+)`", page()))
    option = re.compile(r"(?<![\w-])--?[a-z][\w-]*")
    for command in COMMANDS:
        _, out, _ = desk.call(monkeypatch, capsys, *command.split(), "--help")
        named = set(option.findall(out)) - {"-h", "--help", "--epochs"}
        assert named <= set(option.findall(page()))


def test_a_job_on_the_gpu_is_listed_with_its_wait_and_leaves_the_gpu_when_it_is_killed(gpu_desk):
    cuda = "import ctypes\ncuda = ctypes.CDLL('libcuda.so.1')\nc = ctypes.c_void_p()\n"
    calls = "cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(c), 0)"
    gpu_desk.notebook("a.ipynb", f"{cuda}print({calls})\n{BLOCK}")
    number = int(gpu_desk.tandem("notebook", "submit", "a.ipynb")[0])
    gpu_desk.until("begun")
    record = gpu_desk.jobs()[number]
    assert record["state"] == "running" and record["waited_s"] >= 0
    assert re.search(r" \d+ s$", gpu_desk.tandem("jobs")[0].splitlines()[1])
    (run,) = gpu_desk.card.sessions()
    assert (run["class"], run["name"]) == ("batch", "a")
    os.kill(record["pid"], signal.SIGKILL)
    wait_until(lambda: ended(record["kernel_pid"]), None, "`tandem run` ends, too")
    wait_until(lambda: not gpu_desk.card.sessions(), None, "so does the kernel")


def test_the_example_runs_as_the_page_shows(gpu_desk):
    """The commands of the page's first block, with their output."""
    desk = gpu_desk
    shutil.copy(SOURCE / "examples/notebooks/job.ipynb", desk.path("job.ipynb"))
    block = re.search(r"```\n(\$ tandem notebook submit.*?)```", page(), re.DOTALL)[1]
    shown = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    assert len(shown) >= 4
    for part in shown:
        command, _, output = part.partition("\n")
        words = shlex.split(command, comments=True)
        assert words[0] == "tandem"
        process = desk.start(*words[1:], stderr=subprocess.STDOUT)
        out, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, out
        for line in output.splitlines():
            pattern = re.escape(line).replace(r"\.\.\.", ".*").replace("…", ".*")
            assert re.search(f"^{pattern}$", out, re.MULTILINE), f"{line!r} is not in:\n{out}"
