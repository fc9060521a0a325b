"""The choices of one run of a notebook, and their checks before anything runs."""

import datetime
import itertools
import os
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Dict, List, Optional

from . import document, kernel, parameters, resume
from .errors import BadInput
from .kernel import Launch

RUNNING = "TANDEM_NOTEBOOK"  # the notebooks that run around this process, as paths


@dataclass
class Settings:
    """What `tandem notebook run` and `submit` were asked for. Paths are absolute."""

    notebook: str
    output: str
    in_place: bool = False
    args: List[str] = field(default_factory=list)
    parameters: Dict[str, str] = field(default_factory=dict)  # name to Python expression
    resume: bool = False
    allow_errors: bool = False
    timeout_s: Optional[float] = None  # for each cell
    kernel: Optional[str] = None
    cwd: Optional[str] = None
    where: Optional[str] = None  # a place in Slurm; None: on this machine
    launch: Launch = field(default_factory=Launch)

    def to_record(self):
        """Returns the settings as JSON's types."""
        return asdict(self)

    @classmethod
    def from_record(cls, record):
        """Returns the settings of a record. Ignores members that it does not know."""
        known = {one.name: record[one.name] for one in fields(cls) if one.name in record}
        launch = Launch(**known.pop("launch"))
        return cls(**known, launch=launch)

    @property
    def folder(self):
        """The kernel's working directory: the notebook's folder, as in Jupyter."""
        return self.cwd or str(Path(self.notebook).parent)


@dataclass
class Prepared:
    """A notebook that can run."""

    settings: Settings
    notebook: object  # with the parameters and the finished outputs
    plan: resume.Plan
    kernel_spec: object
    command: List[str]  # starts a program under `tandem run`; empty: without
    notes: List[str]  # for the user


def output_path(notebook, output=None, in_place=False, timestamp=False):
    """Returns the absolute path of the output notebook."""
    notebook = Path(os.path.abspath(notebook))
    if output:
        return os.path.abspath(output)
    if in_place:
        return str(notebook)
    now = f".{datetime.datetime.now():%Y%m%d-%H%M%S}" if timestamp else ""
    return str(notebook.with_name(f"{notebook.stem}.out{now}.ipynb"))


def prepare(settings, source=None):
    """Checks everything that can be checked before a kernel starts. Raises BadInput.

    `source` is the copy of the notebook that a job runs. Fills in the parameters and arguments of
    the run that a resumed one goes on with.
    """
    _refuse_recursion(settings.notebook)
    notebook = document.read(source or settings.notebook)
    document.check_output(settings.output)
    _check_same_file(settings)
    if not os.path.isdir(settings.folder):
        raise BadInput(f"the working directory {settings.folder} does not exist")
    spec = kernel.find_spec(notebook, settings.kernel)
    notes, old = [], None
    if settings.resume and os.path.exists(settings.output):
        old = document.read(settings.output)
        saved_parameters, saved_args = resume.saved_choices(old, settings.output)
        settings.parameters = {**saved_parameters, **settings.parameters}
        settings.args = settings.args or saved_args
    elif settings.resume:
        notes.append(f"{settings.output} does not exist: starting at the first cell")
    if settings.parameters and spec.language.lower() != "python":
        raise BadInput(f"parameters need a Python kernel, and this one runs {spec.language}")
    notes += parameters.unknown(notebook, settings.parameters)
    parameters.inject(notebook, settings.parameters)
    plan = resume.resume(notebook, old) if old else resume.Plan()
    steps = document.steps(notebook)
    for cell in steps[plan.finished :]:
        cell.outputs, cell.execution_count = [], None
    if old:
        notes.append(plan.describe(len(steps)))
    command = kernel.tandem_run(settings.launch, Path(settings.notebook).stem)
    return Prepared(settings, notebook, plan, spec, command, notes)


def sbatch_lines(notebook):
    """Returns the `#SBATCH` lines of the first code or raw cell that has any, for Slurm.

    They stand among the comments and empty lines that the cell begins with.
    """
    for cell in notebook.cells:
        lines = [line.strip() for line in cell.source.splitlines()]
        opening = itertools.takewhile(lambda line: not line or line.startswith("#"), lines)
        found = [line for line in opening if line.startswith("#SBATCH")]
        if found and cell.cell_type in ("code", "raw"):
            return found
    return []


def running_variable(path):
    """Returns the value of TANDEM_NOTEBOOK for the kernel of the notebook at `path`."""
    around = os.environ.get(RUNNING)
    return os.path.realpath(path) + (f"\n{around}" if around else "")


def _refuse_recursion(path):
    if os.path.realpath(path) in os.environ.get(RUNNING, "").split("\n"):
        raise BadInput(
            f"{path} is already running around this command, and would run itself without end; "
            f"if that is intended, unset {RUNNING}"
        )


def _check_same_file(settings):
    try:
        same = os.path.samefile(settings.notebook, settings.output)
    except FileNotFoundError:
        return
    if same and not settings.in_place:
        raise BadInput(f"the output would replace the notebook {settings.notebook}: use --in-place")
