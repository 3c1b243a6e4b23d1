"""What the guides show is run as it stands, and their commands and links lead somewhere."""

import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
import yaml
from hydra import compose, initialize_config_dir
from hydra.errors import HydraException

from contamination.core.commands import command_schema
from contamination.core.config import CONF
from contamination.detection.methods.registry import build_methods
from contamination.detection.passes import ORIGINAL, Example, TokenStats
from contamination.launch.field_reference import COMMANDS
from tests.detection.golden import GOLDEN
from tests.doc_commands import ROOT, Command, commands, fault, pages

DOCS = Path(__file__).resolve().parents[1] / "docs"
SNIPPETS = re.findall(r"```python\n(.*?)```", (DOCS / "python.md").read_text(), re.S)


METHOD = (DOCS / "add-a-method.md").read_text()


def test_the_method_of_the_guide_is_built_and_scores(monkeypatch):
    (code,) = re.findall(r"```python\n(.*?)```", METHOD, re.S)
    (node,) = re.findall(r"```yaml\n(.*?)```", METHOD, re.S)
    module = ModuleType("contamination.detection.methods.my_method")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(code, vars(module))
    built = build_methods(yaml.safe_load(node))
    assert [*built] == [("my_method", "k=0.1"), ("my_method", "k=0.2")]
    example = Example("x", "", {ORIGINAL: [TokenStats(logprob=np.arange(-10.0, 0))]})
    assert [m.score(example) for m in built.values()] == [-10, -9.5]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "mine").symlink_to(GOLDEN / "target")
    words = ["The heron waits by the river", "A ladder leans on the wall", "Rain falls on the road"]
    texts = [f"{words[i % 3]}, and it is day {i}." for i in range(30)]
    frame = pd.DataFrame({"text": texts, "label": [i % 2 for i in range(30)]})
    frame.to_csv("texts.csv", index=False)
    return tmp_path


def test_texts_are_scored_and_evaluated(here, capsys):
    exec(SNIPPETS[0], {})
    shown = capsys.readouterr().out
    for words in ("min_k_plus_plus", "auroc", "blind"):
        assert words in shown
    assert {path.name for path in here.iterdir()} == {"models", "texts.csv"}


@pytest.mark.slow
def test_stages_are_run(here, capsys):
    (snippet,) = [code for code in SNIPPETS if "inject(" in code]
    found = {}
    for _ in range(2):
        exec(snippet, found)
    occurrences, folder = capsys.readouterr().out.splitlines()[-1].split()
    assert int(occurrences) >= 20
    assert (Path(folder) / "model.safetensors").is_file()
    assert len([*(here / "runs" / "model").iterdir()]) == 1


PAGES = [pytest.param(page, id=str(page.relative_to(ROOT))) for page in pages()]


@pytest.mark.parametrize("page", PAGES)
def test_each_command_names_what_exists(page):
    faults = {str(command): problem for command in commands(page) if (problem := fault(command))}
    assert faults == {}


@pytest.mark.slow
def test_hydra_composes_each_command(monkeypatch):
    """Of a sweep its first values; choices that have to be made are none of a page's errors."""
    asked = {}

    def note(command, overrides):
        words = [
            first(override) for override in overrides if "hydra" not in str(override.key_or_group)
        ]
        asked[COMMANDS[command].config, tuple(words)] = None
        return ()

    def first(override):
        if not override.is_sweep_override():
            return override.input_line
        return f"{override.key_or_group}={next(iter(override.sweep_string_iterator()))}"

    monkeypatch.setattr("tests.doc_commands._faults", note)
    for page in pages():
        for command in commands(page):
            fault(command)
    for command in COMMANDS:
        command_schema(COMMANDS[command])  # its dataclasses type their nodes
    with initialize_config_dir(str(CONF), version_base="1.3"):
        errors = {given: composing(*given) for given in asked}
    assert {given: error for given, error in errors.items() if error} == {}


def composing(file, words):
    try:
        compose(file, [*words])
    except HydraException as error:
        return "" if "You must specify" in str(error) else str(error)


def test_pages_have_commands():
    assert sum(len(commands(page)) for page in pages()) > 150


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("make instal", "no such target"),
        ("contamination detct x=1", "no such command"),
        ("contamination list metods", "no such list"),
        ("contamination detect --model-ur http://x/v1", "no such field: model.ur"),
        ("python -m lunch experiment=quickstart", "no module"),
        ("python -m perf.no_such", "no module"),
        ("python -m detection viw", "no command"),
        ("python -m launch -m experiment=quickstrt", "no such choice"),
        ("python -m launch -m experiment=quickstart,frequenc", "no such choice"),
        ("python -m launch training.learning_rat=1", "no such field"),
        ("python -m training model=tiny_llama corpus.paths=x", "no such field"),
        ("python -m audits audit=books positive=DIR", "no such field"),
        ("python -m detection method=[loss,min_k] method.min_k.q=1", "no such field"),
        ("python -m launch corpus.paths=x", "no such field"),
        ("pytest tests/no_such.py", "no such file"),
    ],
)
def test_a_wrong_command_is_noticed(line, part):
    assert part in (fault(Command("x.md", tuple(line.split()))) or "")


@pytest.mark.parametrize(
    "line",
    [
        "contamination detect --model-url http://x/v1 --model-tokenizer DIR out=x",
        "python -m launch corpus=local_jsonl corpus.paths=x",
        "python -m launch -m experiment=paper/table3 corpus.paths=x seed=0,1",
        "python -m detection method=all method.min_k.k=[0.1,0.2]",
        "python -m launch cluster=slurm +cluster.jobs.all.exclude=x",
        "python -m injection benchmark.boolq.on_error=skip",
    ],
)
def test_a_right_command_is_not(line):
    assert fault(Command("x.md", tuple(line.split()))) is None


def test_a_line_may_be_split_commented_bracketed_and_piped(tmp_path, monkeypatch):
    monkeypatch.setattr("tests.doc_commands.ROOT", tmp_path)
    text = "Use `make  test`:\n```\nsrun python -m detection a=<id> \\\n  [b=2] … | jq # why\n```\n"
    (tmp_path / "x.md").write_text(text + "```python\nmake no\n```\n")
    words = {command.words for command in commands(tmp_path / "x.md")}
    assert words == {("make", "test"), ("python", "-m", "detection", "a=x", "b=2")}


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.M | re.S)
    titles = re.findall(r"^#+ +(.*?) *$", text, re.M)
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title) for title in titles]
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in plain}


@pytest.mark.parametrize("page", PAGES)
def test_each_link_leads_to_a_page_and_a_heading(page):
    targets = re.findall(r"\]\(([^)\s]+)\)", page.read_text())
    broken = []
    for target in targets:
        path, _, anchor = target.partition("#")
        other = (page.parent / path).resolve() if path else page
        if re.match(r"https?:", target):
            continue
        if not other.exists() or (anchor and anchor not in anchors(other)):
            broken.append(target)
    assert broken == []


def test_the_index_lists_every_page():
    index = (DOCS / "README.md").read_text()
    linked = {(DOCS / link).resolve() for link in re.findall(r"\]\(([^)#\s]+)", index)}
    assert {*DOCS.glob("*.md")} - linked - {DOCS / "README.md"} == set()
    assert {*DOCS.glob("decisions/*.md")} - linked == set()
    validation = DOCS / "validation"
    inner = (validation / "README.md").read_text()
    assert {p.name for p in validation.glob("*.md")} - {*re.findall(r"\]\((\w[\w.-]*)", inner)} == {
        "README.md"
    }


PATHS = re.compile(
    r"`((?:core|data|injection|training|detection|analysis|audits|launch|perf|conf|tests)/[\w/.-]*)`"
)


@pytest.mark.parametrize("page", PAGES)
def test_each_file_that_a_page_names_exists(page):
    named = {
        path for path in PATHS.findall(page.read_text()) if not re.search("my|data/length", path)
    }
    assert {path for path in named if not (ROOT / path).exists()} == set()


def test_every_table_is_whole():
    """A blank line within a table ends it: the rows behind it are then no table."""
    for path in sorted(DOCS.parent.glob("*.md")) + sorted(DOCS.rglob("*.md")):
        blocks = re.findall(r"(?:^\|.*\n)+", path.read_text(), re.M)
        for rows in map(str.splitlines, blocks):
            assert re.fullmatch(r"\|(\s*:?-+:?\s*\|)+", "".join(rows[1:2])), (path.name, rows[0])
