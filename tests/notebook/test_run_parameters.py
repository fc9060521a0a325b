"""Parameters as text, and what `--resume` runs again. No kernel is needed."""

import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_raw_cell
from run_fixtures import new_markdown_cell, tagged

from tandem.notebook import document, kernel, parameters, resume, settings
from tandem.notebook.errors import BadInput


@pytest.mark.parametrize(
    "word, expression",
    [
        ("rate=0.1", "0.1"),
        ("n=1_000", "1000"),
        ("flag=true", "True"),
        ("flag=False", "False"),
        ("what=null", "None"),
        ("sizes=[1, 2]", "[1, 2]"),
        ("pair=(1,)", "(1,)"),
        ('deep={"a": [true, 1e999]}', "{'a': [True, float('inf')]}"),
        ("big=1e999", "float('inf')"),
        ("name=resnet 50", "'resnet 50'"),
        ("zip=007", "'007'"),
        ("text=a=b", "'a=b'"),
        ("empty=", "''"),
        ("quote='", '"\'"'),
    ],
)
def test_values(word, expression):
    assert parameters.parse(word) == (word.partition("=")[0], expression)


def test_raw_values_are_text():
    assert parameters.parse_raw("n=1") == ("n", "'1'")


@pytest.mark.parametrize("word", ["rate", "2x=1", "class=1", "=1", "a b=1"])
def test_names_that_are_none(word):
    with pytest.raises(BadInput):
        parameters.parse(word)


def test_a_file_of_parameters(tmp_path):
    path = tmp_path / "p.json"
    path.write_text('{"rate": 0.5, "layers": [1, {"a": null}]}')
    assert parameters.from_file(path) == {"rate": "0.5", "layers": "[1, {'a': None}]"}
    path.write_text("[1]")
    with pytest.raises(BadInput, match="one JSON object"):
        parameters.from_file(path)
    with pytest.raises(BadInput, match="cannot read"):
        parameters.from_file(tmp_path / "none.json")


def test_the_cell_goes_below_the_tagged_one_and_replaces_an_earlier_one():
    cells = [new_markdown_cell("# T"), tagged("rate = 1", "parameters"), new_code_cell("rate")]
    notebook = new_notebook(cells=cells)
    parameters.inject(notebook, {"rate": "2"})
    assert [cell.source for cell in notebook.cells[1:3]] == ["rate = 1", "# Parameters\nrate = 2"]
    parameters.inject(notebook, {"rate": "3"})
    assert len(notebook.cells) == 4 and notebook.cells[2].source.endswith("rate = 3")


def test_the_cell_goes_to_the_top_where_none_is_tagged():
    notebook = new_notebook(cells=[new_code_cell("rate")])
    notebook.nbformat_minor = 4  # cells have no ids there
    parameters.inject(notebook, {"rate": "2"})
    assert notebook.cells[0].metadata.tags == ["injected-parameters"]
    assert "id" not in notebook.cells[0]


def test_a_misspelt_name_is_noticed():
    notebook = new_notebook(cells=[tagged("rate = 1", "parameters")])
    (warning,) = parameters.unknown(notebook, {"rat": "2", "rate": "2"})
    assert "did you mean rate?" in warning


def finished(*sources, count):
    """A saved notebook whose first `count` cells have finished and print their numbers."""
    notebook = new_notebook(cells=[new_code_cell(source) for source in sources])
    for number, cell in enumerate(notebook.cells, 1):
        cell.execution_count = number
    resume.note_progress(notebook, "running", count, {}, [])
    return notebook


def test_a_resumed_notebook_keeps_outputs_and_takes_changes_below():
    old = finished("a", "b", "c", "d", count=3)
    cells = [new_code_cell("a"), new_markdown_cell("new"), tagged("b", resume.SKIP_TAG)]
    new = new_notebook(cells=[*cells, new_code_cell("c"), new_code_cell("D")])
    plan = resume.resume(new, old)
    assert plan.again == [1, 3] and plan.skipped == [2]
    assert [cell.execution_count for cell in document.steps(new)] == [1, 2, 3, None]
    assert plan.describe(4) == (
        "resuming at cell 4 of 4; running again, because variables end with the kernel: "
        "cells 1, 3; not running again (tag skip-on-resume): cell 2"
    )


@pytest.mark.parametrize("sources, number", [("aXc", "2, .* has changed"), ("a", "2, .* is gone")])
def test_a_finished_cell_that_changed_is_named(sources, number):
    new = new_notebook(cells=[new_code_cell(source) for source in sources])
    with pytest.raises(BadInput, match=f"cell {number}"):
        resume.resume(new, finished("a", "b", "c", count=2))


def test_slurm_lines_of_the_first_cell_that_has_some():
    cells = ["import os", "# big\n\n#SBATCH --mem=1G\n  #SBATCH -t 1:00\nx = 1\n#SBATCH -x n1", "#SBATCH --no"]
    notebook = new_notebook(cells=[new_code_cell(cell) for cell in cells])
    assert settings.sbatch_lines(notebook) == ["#SBATCH --mem=1G", "#SBATCH -t 1:00"]


def test_slurm_lines_in_a_raw_cell_and_in_no_other_text():
    file = new_code_cell("%%writefile job.sh\n#!/bin/sh\n#SBATCH --array=1-9")
    cells = [new_markdown_cell("#SBATCH --mem=1G"), file, new_raw_cell("#SBATCH --mem=2G")]
    assert settings.sbatch_lines(new_notebook(cells=cells)) == ["#SBATCH --mem=2G"]


def test_the_kernel_starts_as_a_batch_run_and_inside_of_a_run_without_a_class(monkeypatch):
    launch = kernel.Launch(tandem="/bin/true", memory="8G")
    monkeypatch.delenv("TANDEM_RUN", raising=False)
    words = ["/bin/true", "run", "--class", "batch", "--name", "train", "--memory", "8G", "--"]
    assert kernel.tandem_run(launch, "train") == words
    monkeypatch.setenv("TANDEM_RUN", "5")
    assert kernel.tandem_run(launch, "train") == ["/bin/true", "run", "--"]
    assert kernel.tandem_run(kernel.Launch(unshared=True), "train") == []


def test_where_tandem_is_looked_for(monkeypatch, tmp_path):
    program = tmp_path / "tandem"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("TANDEM_COMMAND", str(program))
    assert kernel.find_tandem() == str(program)
    assert kernel.find_tandem("/bin/true") == "/bin/true"
    monkeypatch.delenv("TANDEM_COMMAND")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert kernel.find_tandem() == str(program)
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(BadInput, match="--unshared"):
        kernel.find_tandem()


def test_a_save_keeps_mode_and_link_and_leaves_nothing_else(tmp_path):
    real, link = tmp_path / "real.ipynb", tmp_path / "link.ipynb"
    real.write_text("old")
    real.chmod(0o640)
    link.symlink_to(real)
    document.save(new_notebook(), link)
    assert link.is_symlink() and real.stat().st_mode & 0o777 == 0o640
    assert document.read(link).cells == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.ipynb", "real.ipynb"]
