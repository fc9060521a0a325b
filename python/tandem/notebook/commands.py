"""The command line of `tandem notebook`, `jobs`, `logs`, `cancel` and `wait`."""

import argparse
import os
import sys

from ..usage import Parser
from . import control, kernel, listing, parameters, settings
from .display import Display
from .errors import BadInput

USAGE = 2  # nothing ran
_CLASSES = ("production", "interactive", "batch", "opportunistic")


class _Parser(Parser):
    """A parser whose words that are no options, and all words after `--`, are the notebook's."""

    unknown_hint = "; the notebook's own options follow after --"

    def parse_known_args(self, args=None, namespace=None):
        """Parses the words of the command; `notebook_args` gets those of the notebook."""
        words = list(sys.argv[1:] if args is None else args)
        own = words[: words.index("--")] if "--" in words else words
        namespace, rest = super().parse_known_args(own, namespace)
        namespace.notebook_args = rest + words[len(own) + 1 :]
        return namespace, []


def add_commands(subparsers):
    """Adds the commands. Each sets `run`, which takes the options and returns a status."""
    notebook = subparsers.add_parser("notebook", help="Run whole notebooks, now or as jobs")
    inner = notebook.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)
    _add_run(inner)
    _add_submit(inner)
    _add_jobs(subparsers)
    _add_logs(subparsers)
    _add_cancel(subparsers)
    _add_wait(subparsers)


def _command(subparsers, name, handler, summary, examples, details=""):
    parser = subparsers.add_parser(
        name,
        help=summary,
        description=f"{summary}.{details}",
        epilog="examples:\n" + "".join(f"  {line}\n" for line in examples),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=lambda options: _guarded(handler, options))
    return parser


def _guarded(handler, options):
    try:
        return handler(options)
    except BadInput as error:
        print(f"tandem: {error}", file=sys.stderr)
        return USAGE
    except ModuleNotFoundError as error:
        print(
            f"tandem: the Python package {error.name} is missing: on Debian, install "
            "python3-nbclient and python3-ipykernel",
            file=sys.stderr,
        )
        return USAGE
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _add_run(subparsers):
    parser = _command(
        subparsers,
        "run",
        _run,
        "Run a notebook from top to bottom, saving it after every cell",
        [
            "tandem notebook run train.ipynb",
            "tandem notebook run -p rate=0.1 -p name=big train.ipynb",
            "tandem notebook run train.ipynb -- --epochs 3     # as tandem.argv",
            "tandem notebook run --resume train.ipynb",
        ],
        "\n\nExit status: 0 every cell succeeded, 1 a cell failed, 2 nothing ran, 130 Ctrl-C,\n"
        "143 SIGTERM, 129 the terminal went away.",
    )
    parser.usage = "tandem notebook run [OPTION...] FILE.ipynb [ARG...] [-- ARG...]"
    parser.add_argument("notebook", metavar="FILE.ipynb")
    _add_notebook_options(parser)
    parser.add_argument("--quiet", action="store_true", help="no progress and no wait lines")
    parser.set_defaults(where=None)


def _add_submit(subparsers):
    parser = _command(
        subparsers,
        "submit",
        control.submit,
        "Run a notebook in the background, as a job that outlives the terminal",
        [
            "tandem notebook submit train.ipynb",
            "tandem wait $(tandem notebook submit -p rate=0.1 train.ipynb)",
            "tandem notebook submit --resume 3       # goes on with job 3",
            "tandem notebook submit --where slurm:main,gpu-mem=8G,time=1:00:00 train.ipynb",
        ],
        "\nPrints the number of the job. Jobs of one user run one after the other.\n"
        "\nWith --where slurm it is a job of Slurm, by sbatch: PARTITION and long options of sbatch,\n"
        "divided by commas. They win over `#SBATCH` lines at the top of a cell of the notebook.",
    )
    parser.usage = "tandem notebook submit [OPTION...] FILE.ipynb|JOB [ARG...] [-- ARG...]"
    parser.add_argument("notebook", metavar="FILE.ipynb", help="with --resume also a job's number")
    _add_notebook_options(parser)
    parser.add_argument("--where", metavar="PLACE",
                        help="slurm[:PARTITION][,OPTION=VALUE...], or local: this machine, the default")  # fmt: skip
    parser.add_argument("--now", action="store_true", help="do not queue behind your other jobs")
    parser.add_argument("--json", action="store_true", help="print the job's record")
    parser.set_defaults(quiet=False, make_settings=make_settings)


def _add_notebook_options(parser):
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--output", metavar="FILE", help="default: FILE.out.ipynb")
    where.add_argument("--in-place", action="store_true", help="save into the notebook itself")
    where.add_argument("--timestamp", action="store_true", help="save into FILE.out.TIME.ipynb")
    parser.add_argument("--resume", action="store_true", help="go on after the last finished cell")
    parser.add_argument("-p", dest="given", metavar="NAME=VALUE", action="append", default=[],
                        type=_parameter(parameters.parse), help="set a parameter")  # fmt: skip
    parser.add_argument("-r", dest="given", metavar="NAME=TEXT", action="append",
                        type=_parameter(parameters.parse_raw), help="one that is text")  # fmt: skip
    parser.add_argument("-f", dest="files", metavar="FILE.json", action="append", default=[],
                        help="parameters as a JSON object; -p and -r win")  # fmt: skip
    parser.add_argument("--allow-errors", action="store_true", help="run the cells after a failed")
    parser.add_argument("--timeout", metavar="S", type=_seconds, help="limit for each cell")
    parser.add_argument("--kernel", metavar="NAME", help="default: the notebook's")
    parser.add_argument("--cwd", metavar="DIR", help="default: the notebook's folder")
    gpu = parser.add_argument_group("GPU", "the kernel starts under `tandem run`")
    gpu.add_argument("--unshared", action="store_true", help="start it without `tandem run`")
    gpu.add_argument("--class", dest="of_class", metavar="CLASS", default="batch", choices=_CLASSES,
                     help=f"one of {', '.join(_CLASSES)}; default: batch")  # fmt: skip
    gpu.add_argument("--name", help="default: the notebook's")
    gpu.add_argument("--memory", metavar="SIZE", help="upper limit on its GPU memory")
    gpu.add_argument("--gpu", metavar="KIND", choices=("soft", "cuda"), help="soft or cuda")
    gpu.add_argument("--tandem", metavar="PATH", help="the program `tandem`")


def _parameter(parse):
    def checked(word):
        try:
            return parse(word)
        except BadInput as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return checked


def _seconds(word):
    try:
        seconds = float(word)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{word!r} is not a positive number of seconds")
    return seconds


def make_settings(options):
    """Returns the Settings of parsed options. Raises BadInput."""
    if options.resume and options.timestamp:
        raise BadInput("--resume goes on with an output file: name it by --output")
    given = {}
    for path in options.files:
        given.update(parameters.from_file(path))
    given.update(options.given)
    return settings.Settings(
        notebook=os.path.abspath(options.notebook),
        output=settings.output_path(
            options.notebook, options.output, options.in_place, options.timestamp
        ),
        in_place=options.in_place,
        args=options.notebook_args,
        parameters=given,
        resume=options.resume,
        allow_errors=options.allow_errors,
        timeout_s=options.timeout,
        kernel=options.kernel,
        cwd=os.path.abspath(options.cwd) if options.cwd else None,
        where=_place(options),
        launch=kernel.Launch(
            unshared=options.unshared,
            tandem=kernel.find_tandem(options.tandem) if options.tandem else None,
            of_class=options.of_class,
            name=options.name,
            memory=options.memory,
            gpu=options.gpu,
            quiet=options.quiet,
        ),
    )


def _place(options):
    """Returns the place in Slurm, or None. Raises BadInput where another option contradicts it."""
    where = control.place(options)
    if where is None:
        return None
    contradicts = {
        "--now": (options.now, "Slurm has its own queue"),
        "--memory": (options.memory, f"use --where {where},gpu-mem={options.memory}"),
        "--class": (options.of_class != "batch", f"use --where {where},gpu-class={options.of_class}"),
        "--gpu": (options.gpu, "the node has its own GPU"),
    }
    for name, (given, instead) in contradicts.items():
        if given:
            raise BadInput(f"{name} has no effect in Slurm: {instead}")
    return where


def _run(options):
    from . import runner

    chosen = make_settings(options)
    prepared = settings.prepare(chosen)
    control.refuse_second_writer(chosen.output)
    sys.stdout.reconfigure(errors="replace")
    sys.stderr.reconfigure(errors="replace")
    display = Display(sys.stdout, sys.stderr, progress=not options.quiet)
    for note in prepared.notes:
        display.note(note)
    outcome = runner.run(prepared, display)
    display.end()
    return outcome.status


def _add_jobs(subparsers):
    parser = _command(
        subparsers,
        "jobs",
        listing.jobs,
        "List the notebooks that were submitted",
        ["tandem jobs", "tandem jobs --all", "tandem jobs --json | jq '.jobs[].state'"],
        "\nShows jobs that have not ended, and those that ended within a day.",
    )
    parser.add_argument("--all", action="store_true", help="also those that ended earlier")
    parser.add_argument("--json", action="store_true", help="one JSON object on one line")


def _add_logs(subparsers):
    parser = _command(
        subparsers,
        "logs",
        listing.logs,
        "Show what a job wrote",
        ["tandem logs 3", "tandem logs -f 3"],
    )
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the job ends")
    parser.add_argument("job", metavar="JOB", type=int)


def _add_cancel(subparsers):
    parser = _command(
        subparsers,
        "cancel",
        control.cancel,
        "End jobs: interrupt the cell, save the notebook, end the kernel",
        ["tandem cancel 3", "tandem cancel --grace 60 3 4"],
        "\nA cell that does not react within the grace time is ended with its kernel.",
    )
    parser.add_argument("jobs", metavar="JOB", type=int, nargs="+")
    parser.add_argument("--grace", metavar="S", type=_seconds, default=control.GRACE_S,
                        help=f"default: {control.GRACE_S:g} s")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print the jobs' records")


def _add_wait(subparsers):
    parser = _command(
        subparsers,
        "wait",
        control.wait,
        "Wait until jobs have ended",
        ["tandem wait 3 && echo done", "tandem wait --timeout 60 3 4"],
        "\nExit status: the job's own; the greatest one of several; 124 after the timeout.",
    )
    parser.add_argument("jobs", metavar="JOB", type=int, nargs="+")
    parser.add_argument("--timeout", metavar="S", type=_seconds, help="wait at most so long")
    parser.add_argument("--json", action="store_true", help="print the jobs' records")
