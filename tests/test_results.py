"""`make results`: it launches what docs/results.md shows, and copies what comes out."""

import json
import re
from types import SimpleNamespace

import pytest

from contamination.core.errors import ConfigError
from perf import results
from tests.doc_commands import ROOT


def commands_of_page():
    """The launches that docs/results.md shows: their words without quotes and comments."""
    text = (ROOT / "docs" / "results.md").read_text().replace("\\\n", " ")
    lines = re.findall(r"^python -m launch (.*)$", text, flags=re.M)
    return {" ".join(line.partition("#")[0].replace("'", "").split()) for line in lines}


def test_it_launches_what_the_page_shows():
    own = {words for name, words in results.LAUNCHES.items() if name != "quickstart"}
    assert commands_of_page() == own
    files = {path.stem for path in (ROOT / "conf" / "experiment").glob("*.yaml")}
    found = {re.search(r"experiment=(\w+)", words)[1] for words in own}
    assert found <= files
    assert {*results.AUDITS} <= {*results.LAUNCHES}


@pytest.mark.parametrize(
    ("word", "said"),
    [("frequencies", "Did you mean frequency"), ("outs=x", "'outs' is no field")],
)
def test_an_unknown_word_is_refused_before_any_launch(word, said):
    with pytest.raises(ConfigError, match=said):
        results.make_results(["quickstart", word])


def test_charts_tables_and_audits_are_copied(monkeypatch, tmp_path):
    runs = tmp_path / "runs"
    folder = runs / "report" / "one-0123456789ab"
    audit = runs / "audit" / "inflation-tiny-0123456789ab"
    for file in (
        folder / "charts/roc.pdf", folder / "charts/roc.png", folder / "tables/auroc.csv",
        folder / "tables/auroc.tex", audit / "audit.md", audit / "null.csv",
        audit / "charts/doses.svg", runs / "law/law-0123456789ab/manifest.json",
        runs / "law/law-0123456789ab/law.pdf",
        audit / "manifest.json", runs / "audit" / "books-0123456789ab" / "audit.md",
    ):  # fmt: skip
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(file.name)
    (folder.parent / "latest.json").write_text(json.dumps({"folder": folder.name}))
    report = SimpleNamespace(artifact=SimpleNamespace(path=folder))
    monkeypatch.setattr(results, "open_report", lambda path: report if path == folder else None)
    stale = tmp_path / "out" / "frequency" / "old.csv"
    stale.parent.mkdir(parents=True)
    stale.write_text("")
    results.copy_results(runs, stale.parent, ["inflation"], has_law=True)
    copied = [path for path in stale.parent.rglob("*") if path.is_file()]
    assert sorted(str(path.relative_to(stale.parent)) for path in copied) == [
        "auroc.csv", "inflation/audit.md", "inflation/charts/doses.svg", "inflation/null.csv",
        "law/law.pdf", "roc.pdf", "roc.png",
    ]  # fmt: skip
