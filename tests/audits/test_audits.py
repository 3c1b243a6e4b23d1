"""What all audits share: the artefact, the page, the Markdown, the command line."""

import re
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from importlib.metadata import EntryPoint, EntryPoints
from xml.etree import ElementTree

import pandas as pd
import pytest
import yaml
from hydra.core.config_store import ConfigStore

from contamination.audits.base import (
    ENTRY_POINTS,
    Audit,
    AuditStage,
    add_audit_prefixes,
    chosen_audit_name,
    find_audit_command,
    load_audit_class,
    register_installed_audits,
)
from contamination.audits.run import KIND, read_findings, run
from contamination.core.artifacts import open_artifact
from contamination.core.cli import compose_stage
from contamination.core.commands import Command, read_commands
from contamination.core.config import CONF
from contamination.core.errors import ArtifactError, ConfigError
from contamination.core.help import render_command
from contamination.core.report.charts import CSS_VARIABLES, InlineChart, page_figure
from contamination.core.report.document import ReportContent, markdown_document, save_charts
from contamination.core.report.html import html_table, keep_intervals_together, read_report_file
from contamination.data.config import ExamplesConfig
from contamination.detection.config import DetectionStage, ScoredModelConfig
from tests.audits.sample import Letters

TARGET = "tests.audits.sample.Letters"


@pytest.fixture
def stage(tmp_path):
    (tmp_path / "a.txt").write_text("abc")
    node = {"_target_": TARGET, "file": str(tmp_path / "a.txt")}
    return AuditStage(audit=node, runs=str(tmp_path / "runs"))


def test_an_audit_is_an_artefact(stage):
    made = run(stage)
    assert made.path.name.startswith("letters-model-")
    charts = {"charts/letters.svg", "charts/letters.pdf"}
    assert {*made.files} == {"letters.parquet", "letters.csv", "audit.md", "report.html", *charts}
    assert made.counts == {"letters": 3}
    assert pd.read_parquet(made.path / "letters.parquet")["letters"].tolist() == [3]
    assert open_artifact(made.path, KIND).digest == made.digest


def test_findings_of_other_bytes_are_an_error(stage):
    made = run(stage)
    assert read_findings(made).startswith("# ")
    (made.path / "audit.md").write_bytes(b"E\x7f\xbb")
    with pytest.raises(ArtifactError, match=r"audit\.md can't be read .*utf-8"):
        read_findings(made)


def test_it_is_found_again_wherever_its_file_is(stage, tmp_path):
    made = run(stage)
    (tmp_path / "b.txt").write_text("abc")
    moved = {**stage.audit, "file": str(tmp_path / "b.txt")}
    assert run(replace(stage, audit=moved)).path == made.path
    (tmp_path / "b.txt").write_text("abcd")
    assert run(replace(stage, audit=moved)).path != made.path
    assert run(replace(stage, audit={**stage.audit, "times": 2})).path != made.path
    assert run(replace(stage, seed=1)).path != made.path


class Page(HTMLParser):
    """What a page loads, and its text."""

    def __init__(self, page):
        super().__init__()
        self.loads, self.words = [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.loads += [v for n in ("src", "href", "xlink:href") if (v := found.get(n))]

    def handle_data(self, data):
        self.words.append(data)


def test_the_page_needs_nothing_else_and_names_are_no_markup(stage):
    page = (run(stage).path / "report.html").read_text()
    found = Page(page)
    assert all(v.startswith(("data:", "#")) for v in found.loads)
    assert "<b>" not in page
    assert "<b>a|b</b>" in "".join(found.words)
    assert "<strong>3</strong> letters &amp; &lt;no&gt; more." in page
    assert "{{" not in page


def test_a_name_is_drawn_as_it_is_whatever_its_letters():
    names = [r"$5 or $\bad{", "紅樓夢", "<script>"]
    with page_figure(4, 3) as (figure, axes):
        axes.set_yticks([1, 2, 3], names)
        chart = InlineChart("names", "", figure, "names", "")
    drawing = ElementTree.fromstring(chart.svg)
    assert {*names} <= {*drawing.itertext()}


def test_a_chart_has_the_pages_own_colours(stage):
    page = (run(stage).path / "report.html").read_text()
    chart = re.search(r"<svg.*?</svg>", page, re.DOTALL)[0]
    ElementTree.fromstring(chart)  # it is whole
    assert not any(colour in chart.lower() for colour in CSS_VARIABLES)
    used = set(re.findall(r"var\((--\w+)\)", chart))
    assert "--member" in used
    assert all(f"{name}:" in read_report_file() for name in {*CSS_VARIABLES.values(), *used})


def test_charts_have_files_of_their_own_and_the_same_bytes_every_time(tmp_path):
    def drawn():
        with page_figure(4, 3) as (figure, axes):
            axes.bar([f"model {n} of many" for n in range(6)], range(6))
            axes.set_ylabel("score")
            axes.tick_params(axis="x", rotation=30)
            return InlineChart("scores", "Title", figure, "label", "caption")

    content = ReportContent("Title", [], charts=[drawn(), drawn()])
    names = save_charts(content, tmp_path)
    stems = ["charts/scores", "charts/scores-2"]
    assert names == [f"{stem}.{ending}" for stem in stems for ending in ("svg", "pdf")]
    for one, other in ((names[0], names[2]), (names[1], names[3])):
        assert (tmp_path / one).read_bytes() == (tmp_path / other).read_bytes()
    content.charts[0].save(tmp_path / "again.svg")
    assert (tmp_path / "again.svg").read_bytes() == (tmp_path / names[0]).read_bytes()
    assert "charts/" not in markdown_document(content)


def test_long_cells_are_broken_and_intervals_are_not():
    table = html_table(["a"], [["0.5 [0.4, 0.6]"], ["a long title " * 9]])
    assert re.findall("<td(.*?)>", table) == ["", " class=long"]
    assert keep_intervals_together("went 0.5 [0.4, 0.6] up") == "went 0.5\u00a0[0.4,\u00a00.6] up"
    assert keep_intervals_together("a 5% [4%, 6%]") == "a 5%\u00a0[4%,\u00a06%]"


def test_the_text_for_a_reader_has_all_and_links_to_the_charts(stage):
    folder = run(stage).path
    text = (folder / "audit.md").read_text()
    (link,) = re.findall(r"!\[the \"letters\"\]\((.*?)\)", text)
    drawing = ElementTree.fromstring((folder / link).read_text())
    assert "<letters> & more" in [*drawing.itertext()]
    assert "var(" not in (folder / link).read_text()
    assert (folder / link).with_suffix(".pdf").read_bytes().startswith(b"%PDF")
    for words in ("# Letters of", "**3** letters", "**Few \\| letters.**", "a\\|b", "A note.",
                  "- It can't read.", "a & b"):  # fmt: skip
        assert words in text


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"file": None}, "audit.file is None: give a file or a folder."),
        ({"times": 0}, "audit.times is 0: give 1 or more."),
        ({"tims": 2}, "tims"),
        ({"_target_": "pathlib.Path"}, "give a subclass of contamination.audits.base.Audit"),
    ],
)
def test_what_no_audit_can_be_given_is_named(stage, change, words):
    node = {**stage.audit, **change}
    with pytest.raises(ConfigError, match=re.escape(words)):
        run(replace(stage, audit=change if "_target_" in change else node))


def test_a_field_may_be_given_without_its_node():
    for file in (CONF / "audit").glob("*.yaml"):
        fields = [name for name in yaml.safe_load(file.read_text()) if name != "_target_"]
        own = [name for name in fields if name not in AuditStage.__dataclass_fields__]
        words = [f"audit={file.stem}", *(f"{name}=1" for name in own), "model.path=x", "seed=1"]
        long = [f"audit={file.stem}", *(f"audit.{name}=1" for name in own), *words[-2:]]
        assert add_audit_prefixes(words) == long
        assert add_audit_prefixes(long) == long
    assert add_audit_prefixes(["audit=nowhere", "positives=a"]) == ["audit=nowhere", "positives=a"]
    assert add_audit_prefixes(["positives=a"]) == ["positives=a"]
    overrides = [
        "audit=books", "audit=one_run_bound", "shares.0=1", "+delta=1", "deltas=1", "name=x",
    ]  # fmt: skip
    prefixed = ["audit.shares.0=1", "+audit.delta=1", "deltas=1", "name=x"]
    assert add_audit_prefixes(overrides) == [*overrides[:2], *prefixed]
    assert chosen_audit_name(overrides) == "one_run_bound"
    assert chosen_audit_name(["xaudit=books", "audit=", "audit=a=b"]) is None


@pytest.fixture
def installed(monkeypatch):
    """Another package's audit `letters`, and one that can't be imported."""
    points = EntryPoints(
        EntryPoint(name, f"{module}:Letters", ENTRY_POINTS)
        for name, module in (("letters", "tests.audits.sample"), ("broken", "nowhere"))
    )
    monkeypatch.setattr(
        "contamination.audits.base.entry_points", lambda **given: points.select(**given)
    )
    yield
    ConfigStore.instance().repo.pop("audit", None)


@pytest.mark.usefixtures("installed")
def test_an_audit_of_another_package_is_chosen_like_those_of_the_folder(tmp_path):
    (tmp_path / "a.txt").write_text("abc")
    words = ["audit=letters", f"file={tmp_path / 'a.txt'}", "times=2", f"runs={tmp_path}"]
    register_installed_audits(words)
    overrides = add_audit_prefixes(words)
    assert overrides[1:3] == [f"audit.file={tmp_path / 'a.txt'}", "audit.times=2"]
    nodes = ConfigStore.instance().repo["audit"]
    letters = {"_target_": "tests.audits.sample.Letters", "file": None, "times": 1}
    assert nodes["letters.yaml"].node == letters
    assert nodes["broken.yaml"].node == {"_target_": "nowhere.Letters"}  # not imported
    assert run(compose_stage("audit", overrides, AuditStage)).counts == {"letters": 6}


@pytest.mark.usefixtures("installed")
def test_an_audit_of_another_package_has_a_screen_of_its_own():
    screen = render_command(find_audit_command(["audit=letters", "--help"]))
    assert "Usage:    contamination audit letters" in screen
    assert "  times=" in screen
    assert find_audit_command(["audit=letters"]) == Command(
        name="audit letters", module="audits letters", purpose="Counts the letters of a file.",
        example="model.path=DIR", docs=read_commands()["audit"].docs,
        words={"file=null": "", "times=1": ""},
    )  # fmt: skip
    for words, name in ((["seed=1"], "audit"), (["audit=books"], "audit books")):
        assert find_audit_command(words) is read_commands()[name]
    names = {name.split()[1] for name in read_commands() if name.startswith("audit ")}
    known = ", ".join(sorted([*names, "letters", "broken"]))
    words = rf"^audit=leters: unknown audit\. Did you mean letters( or \w+)*\? Known: {known}\.$"
    with pytest.raises(ConfigError, match=words):
        find_audit_command(["audit=leters"])


@dataclass(frozen=True)
class Words(Letters):
    """Counts words."""

    names: list[str] = field(default_factory=lambda: ["a", "b"], kw_only=True)
    folder: str = field(kw_only=True)
    """Where they are."""


class Undecorated(Audit):
    """An audit that is no dataclass."""


def make_words():
    """A function, no audit."""


def install(monkeypatch, name):
    point = EntryPoint("words", f"{__name__}:{name}", ENTRY_POINTS)
    points = EntryPoints([point])
    monkeypatch.setattr(
        "contamination.audits.base.entry_points", lambda **given: points.select(**given)
    )
    return point


def test_a_required_field_of_another_package_s_audit_has_no_default(monkeypatch):
    point = install(monkeypatch, "Words")
    register_installed_audits(["audit=words"])
    assert ConfigStore.instance().repo.pop("audit")["words.yaml"].node == {
        "_target_": f"{__name__}.Words", "file": None, "times": 1, "names": ["a", "b"],
        "folder": "???",
    }  # fmt: skip
    assert load_audit_class(point) is Words
    words = find_audit_command(["audit=words"]).words
    assert words["folder=(required)"] == "Where they are."


@pytest.mark.parametrize("name", ["Undecorated", "make_words", "Page", "Command"])
def test_what_is_no_dataclass_below_audit_is_no_audit(monkeypatch, name):
    message = (
        f"audit is 'words': make {__name__}:{name} a dataclass below "
        "contamination.audits.base.Audit."
    )
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        load_audit_class(install(monkeypatch, name))


@pytest.mark.usefixtures("installed")
def test_an_audit_that_cant_be_imported_is_an_error_where_it_is_chosen():
    message = (
        "audit is 'broken': nowhere:Letters can't be imported (ModuleNotFoundError: No module "
        "named 'nowhere'). Fix or remove the package that installs it."
    )
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        register_installed_audits(["audit=broken"])


@pytest.mark.parametrize("model", [None, ScoredModelConfig(path="another")])
def test_texts_are_scored_with_the_nodes_of_the_audit(monkeypatch, model):
    calls = []
    module = "contamination.detection.run"

    def score(stage, **options):
        calls.append((stage, options))
        return "scores"

    def name_folder(stage, texts, *_):
        calls.append((stage, texts))
        return "folder"

    monkeypatch.setattr(f"{module}.run", score)
    monkeypatch.setattr(f"{module}.scores_folder", name_folder)
    stage = AuditStage(
        audit={}, name="n", seed=3, runs="r", model=ScoredModelConfig(path="own"),
        method={"loss": {"a": 1}},
    )  # fmt: skip
    assert stage.score_texts("texts", "fresh texts", model) == "scores"
    assert stage.scores_folder("texts", "fresh texts", model) == "folder"
    (scored, options), (named, texts) = calls
    assert (options, texts) == ({"examples": "texts"}, "texts")
    assert scored == named == DetectionStage(
        name="n", seed=3, runs="r", model=model or stage.model, method={"loss": {"a": 1}},
        examples=ExamplesConfig("(fresh texts)"),
    )  # fmt: skip
