"""Every command has a screen, which names fields that exist and imports no model library."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from contamination.core.commands import Command as CommandDoc
from contamination.core.commands import describe_field, read_commands, subcommands
from contamination.core.config import CONF
from contamination.core.field_docs import FieldDoc, describe_dataclass
from contamination.core.help import (
    WIDTH,
    print_help_or_error,
    print_usage_error,
    render_command,
    render_overview,
)
from contamination.core.hydra_errors import similar_fields
from tests.doc_commands import Command, fault

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = read_commands()
MOST_LINES = 42


def test_every_file_of_conf_is_a_command_and_every_audit_a_subcommand():
    files = {path.stem for path in CONF.glob("*.yaml")} - {"common", "help"}
    assert {command.config for command in COMMANDS.values()} - {""} == files
    audits = {f"audit {path.stem}" for path in (CONF / "audit").glob("*.yaml")}
    named = {name for name in COMMANDS if name.startswith("audit ")}
    assert audits == named - {"audit fresh"}  # which prepares an audit


@pytest.mark.parametrize("name", COMMANDS)
def test_a_screen_fits_and_has_all_that_a_reader_needs(name):
    command = COMMANDS[name]
    lines = render_command(command).split("\n")
    assert len(lines) <= MOST_LINES
    assert max(map(len, lines)) <= WIDTH
    assert f"Usage:    contamination {name} " in "\n".join(lines)
    assert all(any(line.startswith(f"  {c.word} ") for line in lines) for c in subcommands(command))
    for page in command.docs.split(", "):
        assert (ROOT / page.partition("#")[0]).is_file()


@pytest.mark.parametrize("name", [name for name in COMMANDS if COMMANDS[name].fields])
def test_each_field_exists_and_is_described(name):
    for field in COMMANDS[name].fields:
        assert describe_field(COMMANDS[name], field).text, field
    assert len(COMMANDS[name].fields) <= 12


@pytest.mark.parametrize("name", COMMANDS)
def test_each_example_is_a_command(name):
    words = [*name.split(), *COMMANDS[name].example.split("'")[0].split()]
    assert fault(Command("conf/help.yaml", ("contamination", *words))) is None


@pytest.mark.parametrize(
    ("name", "field", "default", "range_"),
    [
        ("train", "training.learning_rate", "0.0001", "a number above 0"),
        ("quickstart", "training.learning_rate", "4e-3", "a number above 0"),
        ("quickstart", "injection.budget_tokens", "600000", ""),
        ("train", "corpus_folder", "", ""),
        ("detect view", "out", "view.html", ""),
        ("audit books", "audit.length", "512", "2 or more"),
        ("audit benchmark", "method", "[loss, zlib, min_k, min_k_plus_plus, gap_k, surp]", None),
        ("audit books", "method", "[loss, zlib, lowercase, min_k]", None),
        ("detect build", "source.paths", "null", ""),
    ],
)
def test_a_default_is_that_of_the_command(name, field, default, range_):
    doc = describe_field(COMMANDS[name], field)
    assert doc.default == default
    assert range_ is None or doc.range == range_


def test_a_field_that_does_not_exist_is_an_error():
    with pytest.raises(KeyError, match="train has no field training.rate"):
        describe_field(COMMANDS["train"], "training.rate")


@dataclasses.dataclass
class WithState:
    """An object of a config, with a state that nobody sets."""

    seed: int = 0
    _latest: int | None = None
    counts: list[int] = dataclasses.field(default_factory=list, init=False)


def test_what_cannot_be_set_on_the_command_line_is_no_field():
    assert [described.name for described in describe_dataclass(WithState).fields] == ["seed"]


def test_the_overview_fits():
    lines = render_overview().split("\n")
    assert len(lines) <= MOST_LINES
    assert max(map(len, lines)) <= WIDTH


def test_no_screen_imports_a_slow_library():
    """Each screen reads the fields of dataclasses, so that it appears within a second."""
    code = """
import sys
from importlib import import_module
from contamination.core.commands import read_commands
from contamination.core.help import render_command, render_overview
SLOW = {"torch", "transformers", "deepspeed", "datasets", "pandas", "scipy", "sklearn",
        "matplotlib", "plotly", "httpx"}
import contamination.audits.base, contamination.launch.cli
for package in ("injection", "training", "detection", "analysis", "audits", "launch"):
    import_module(f"contamination.{package}.__main__")
render_overview()
imported_by = {"the command line": SLOW & {*sys.modules}}
for name, command in read_commands().items():
    before = {*sys.modules}
    render_command(command)
    imported_by[name] = SLOW & {*sys.modules} - before
print({name: sorted(modules) for name, modules in imported_by.items() if modules})
"""
    process = subprocess.run(
        [sys.executable, "-c", code],
        check=True, timeout=100, cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert process.stdout == "{}\n"


@pytest.mark.parametrize(
    ("name", "similar"),
    [
        ("metod", ["method"]),
        ("training.learning_rat", ["training.learning_rate"]),
        ("learning_rate", ["training.learning_rate", "model.pretraining.learning_rate"]),
        ("xyz", []),
    ],
)
def test_similar_fields(name, similar):
    fields = ["method", "seed", "model.pretraining.learning_rate", "training.learning_rate"]
    assert similar_fields(name, fields) == similar


def test_every_summary_of_the_overview_begins_in_one_column_after_its_name():
    commands = [command for command in COMMANDS.values() if command.group]
    lines = render_overview().split("\n")
    starts = set()
    for command in commands:
        (line,) = [line for line in lines if line.startswith(f"  {command.name} ")]
        summary = line.removeprefix(f"  {command.name}").strip()
        assert command.summary.startswith(summary)
        starts.add(line.index(summary))
    assert starts == {2 + max(len(command.name) for command in commands) + 2}
    assert max(map(len, lines)) <= WIDTH


FIELDS = {
    "audit.length": FieldDoc("audit.length", "int", "512", "2 or more", "tokens per text. More."),
    "model.path": FieldDoc("model.path", "str", "", "", "`DIR` of a model; null: none is loaded"),
    "template": FieldDoc("template", "str", " ", "", f"what is {'very ' * 13}long; then cut"),
    "many": FieldDoc("many", "list[str]", f"[{'method, ' * 5}last]", "loss, zlib", "loss, or zlib"),
    "note": FieldDoc("note", "str", f"{'word ' * 16}", "", f"{'Word ' * 20}"),
}
PARENT = CommandDoc(
    name="audit", module="audits", purpose="Audits a model. It runs all.", example="seed=1",
    docs="docs/audits.md", group="Audit", config="audit",
)  # fmt: skip
NESTED = CommandDoc(
    name="audit books", module="audits books", purpose=f"Tests {'whole ' * 11}books.",
    example=f"{'model.path=runs/model/DIR ' * 3}out=report", docs="docs/books.md", config="audit",
    choice="audit=books", fields=tuple(FIELDS),
)  # fmt: skip
FRESH = CommandDoc(
    name="audit fresh", module="audits fresh", purpose="Prepares items.", example="", docs="d.md",
    group="Audit", config="fresh",
)  # fmt: skip
TOOL = CommandDoc(
    name="status", module="", purpose="Lists jobs.", example="FOLDER", docs="docs/launch.md",
    group="Audit", words={"FOLDER": f"the folder {'of all ' * 11}jobs", "N": "how many"},
)  # fmt: skip
SMALL_COMMANDS = {command.name: command for command in (PARENT, NESTED, FRESH, TOOL)}
NESTED_SCREEN = """\
Tests whole whole whole whole whole whole whole whole whole whole whole books.

Usage:    contamination audit books [field=value ...]
          python -m audits books …   (in a checkout)
Example:  contamination audit books model.path=runs/model/DIR \\
            model.path=runs/model/DIR model.path=runs/model/DIR out=report

Main fields, with default and range:
  length=512   [2 or more]
      Tokens per text
  model.path (required)
      DIR of a model
  template=" "
      What is very very very very very very very very very very very very …
  many=[method, method, method, method, method, last]   [loss, zlib]
      loss, or zlib
  note=word word word word word word word word word word word word word word …
      Word Word Word Word Word Word Word Word Word Word Word Word Word Word …

More: docs/books.md. All fields: docs/fields.md. Values in use: --cfg job.
Hydra's own options: --hydra-help."""
PARENT_SCREEN = """\
Audits a model. It runs all.

Usage:    contamination audit [NAME] [field=value ...]
          python -m audits …   (in a checkout)
Example:  contamination audit seed=1

Sub-commands (contamination audit NAME --help):
  books  Tests whole whole whole whole whole whole whole whole whole whole whole
         books
  fresh  Prepares items

More: docs/audits.md. All fields: docs/fields.md. Values in use: --cfg job.
Hydra's own options: --hydra-help."""
TOOL_SCREEN = """\
Lists jobs.

Usage:    contamination status [WORD ...]
Example:  contamination status FOLDER

Words:
  FOLDER  the folder of all of all of all of all of all of all of all of all of
          all of all of all jobs
  N       how many

More: docs/launch.md."""
OVERVIEW = """\
Controlled contamination experiments for language models.

Usage: contamination COMMAND [SUB-COMMAND] [field=value ...]

Audit:
  audit        Audits a model
                 sub-commands: books
  audit fresh  Prepares items
  status       Lists jobs

`contamination COMMAND [SUB-COMMAND] --help` shows the main fields of each.
--version prints the version. All pages: docs/README.md. All fields:
docs/fields.md."""


@pytest.fixture
def small_commands(monkeypatch):
    """Three small commands in the place of the project's."""
    for module in ("commands", "help"):
        monkeypatch.setattr(f"contamination.core.{module}.read_commands", lambda: SMALL_COMMANDS)
    monkeypatch.setattr("contamination.core.help.describe_field", lambda _, name: FIELDS[name])


@pytest.mark.parametrize(
    ("command", "screen"),
    [(NESTED, NESTED_SCREEN), (PARENT, PARENT_SCREEN), (TOOL, TOOL_SCREEN)],
    ids=["fields", "sub-commands", "words"],
)
def test_a_screen_as_a_whole(small_commands, command, screen):
    assert render_command(command).split("\n") == screen.split("\n")


def test_the_overview_as_a_whole(small_commands):
    assert render_overview().split("\n") == OVERVIEW.split("\n")


def test_only_the_pipeline_sweeps(small_commands):
    pipeline = dataclasses.replace(PARENT, name="pipeline", module="launch", config="pipeline")
    usage = "Usage:    contamination pipeline [-m] [field=value ...]"
    assert render_command(pipeline).split("\n")[2] == usage


UNKNOWN = (
    "error: audit fres: no such sub-command. Did you mean fresh? Known: fresh. A field is given "
    "as field=value.\n"
)


@pytest.mark.parametrize(
    ("words", "status", "printed", "error"),
    [
        (["--help"], 0, PARENT_SCREEN, ""),
        (["seed=1", "-h"], 0, PARENT_SCREEN, ""),
        (["audit=books", "--help"], 0, NESTED_SCREEN, ""),
        (["books", "--help"], 0, NESTED_SCREEN, ""),
        (["fres"], 2, "", UNKNOWN),
        (["9"], None, "", ""),
        (["seed=1"], None, "", ""),
        (["-m"], None, "", ""),
        ([], None, "", ""),
    ],
)
def test_what_a_command_answers_before_it_runs(
    small_commands, monkeypatch, capsys, words, status, printed, error
):
    monkeypatch.setattr(sys, "argv", ["contamination", *words])
    assert print_help_or_error("audits") == status
    outputs = capsys.readouterr()
    assert (outputs.out.removesuffix("\n"), outputs.err) == (printed, error)


def test_a_usage_error_is_the_screen(small_commands, capsys):
    assert print_usage_error("audits books") == 2
    assert capsys.readouterr() == ("", f"{NESTED_SCREEN}\n")
