"""Cells of a pretraining and a fine-tuning: told apart by what they saw, pooled, charted."""

from dataclasses import replace

import pandas as pd
import pytest

from contamination.analysis.cells import make_cell, name_apart, series_settings
from contamination.analysis.charts.stages import (
    has_several_panels,
    rows_by_condition_family,
    stage_chart,
)
from contamination.analysis.conditions import TwoStageTraining
from contamination.analysis.config import AnalysisConfig
from contamination.analysis.statistics.tidy_tables import compute_statistics
from contamination.analysis.sweeps import find_sweeps
from contamination.core.errors import ArtifactError
from tests.analysis.conftest import Opened, opened, simulate_parts

QUICK = AnalysisConfig(draws=20, fpr=[0.25], tpr=[])
SAW = {"pretraining": (3, 0), "finetuning": (0, 3), "both": (3, 3), "nowhere": (0, 0)}


class Trained(Opened):
    @property
    def exposures(self):
        return self.table


def trained(seen, digest, start, corpus, **training):
    config = {"model": {"name": "tiny"}, "training": {"learning_rate": 1e-3, **training}}
    made = opened("model", digest, config=config, table=pd.DataFrame({"step": range(seen)}))
    inputs = {"model": start, "corpus": corpus}
    return Trained(replace(made.artifact, inputs=inputs), config, table=made.table)


def texts_of(examples, copies=1, **config):
    """A fine-tuning set with so many copies of each member."""
    counts = examples["member"].astype(int) * copies
    return opened("finetuning", "set0", config=config, examples=examples.assign(occurrences=counts))


def two_stage(
    stage="both", scope="output", epochs=1, seed=0, layout="packed", copies=1, has_copies=True
):
    parts = simulate_parts(benchmarks=["boolq"], seed=seed)
    if not has_copies:
        parts["corpus"].examples["occurrences"] = 0
    digest = parts["model"].artifact.digest
    copies = copies if SAW[stage][1] else 0
    texts = texts_of(parts["corpus"].examples, copies, finetuning={"layout": layout})
    texts = replace(texts, artifact=replace(texts.artifact, digest=f"set{seed}"))
    first = trained(SAW[stage][0], f"first{stage}{seed}", "base", f"corpus{seed}", order_seed=seed)
    start = first.artifact.digest
    last = trained(SAW[stage][1], digest, start, f"set{seed}", epochs=epochs, loss_on="output")
    return make_cell(**{**parts, "model": last}, second=TwoStageTraining(first, texts), scope=scope)


def test_a_cell_is_named_by_its_stage_its_epochs_and_its_scope():
    cell = two_stage("pretraining", "input", 3)
    assert cell.name == "tiny-lr0.001-tokens400000-pretraining-epochs3-input-seed0"
    assert {"first", "finetuning"} <= set(cell.digests)
    assert (cell.stage, cell.scope, cell.epochs) == ("pretraining", "input", 3)


def test_an_example_has_the_flags_of_both_stages():
    parts = simulate_parts(benchmarks=["boolq"])
    examples = parts["corpus"].examples
    own, later = (pd.Series("", examples.index) for _ in range(2))
    own[:2], later[1:3] = "base: 13-gram", "instructions: verbatim"
    own[3], later[3] = "base: 13-gram", "base: 13-gram, instructions: verbatim"
    texts = texts_of(examples.assign(contamination=later), finetuning={"layout": "packed"})
    parts["corpus"].examples["contamination"] = own
    digest = parts["model"].artifact.digest
    first = trained(3, "first", "base", "corpus0", order_seed=0)
    last = trained(3, digest, first.artifact.digest, "set0", epochs=1, loss_on="output")
    cell = make_cell(
        **{**parts, "model": last}, second=TwoStageTraining(first, texts), scope="output"
    )
    flags = cell.examples.set_index("example_id")["contamination"]
    assert flags.reindex(examples["example_id"][:5]).tolist() == [
        "base: 13-gram",
        "base: 13-gram, instructions: verbatim",
        "instructions: verbatim",
        "base: 13-gram, instructions: verbatim",
        "",
    ]


def test_cells_are_pooled_over_seeds_and_over_nothing_else():
    alike = {two_stage(seed=seed).recipe for seed in (0, 1)}
    assert len(alike) == 1
    others = [two_stage("pretraining"), two_stage(scope="whole"), two_stage(epochs=2),
              two_stage(layout="padded")]  # fmt: skip
    assert len({one.recipe for one in others} | alike) == 5


def test_a_cell_whose_members_nothing_saw_is_refused():
    with pytest.raises(ArtifactError, match="neither it nor the model .* saw a copy of a member"):
        two_stage("nowhere")


def test_a_clean_twin_has_members_in_neither_stage():
    cell = two_stage("nowhere", has_copies=False)
    assert cell.stage == "neither"
    assert not cell.examples["occurrences"].any()


def test_members_in_fine_tuning_alone_are_counted_by_their_copies_there():
    for stage, counts in {"finetuning": {0, 3}, "both": {0, 1, 2, 4, 8}}.items():
        assert {*two_stage(stage, copies=3).examples["occurrences"]} == counts


def test_a_set_of_other_members_than_the_corpus_is_refused():
    """Its members would be counted as non-members, and the corpus's as seen."""
    parts = simulate_parts(benchmarks=["boolq"])
    other = simulate_parts(benchmarks=["boolq"], swapped=True)["corpus"].examples
    first = trained(0, "first", "base", "corpus0")
    last = trained(3, parts["model"].artifact.digest, "first", "set0")
    with pytest.raises(ArtifactError, match="copies of boolq-032, which is no member in cells.cor"):
        make_cell(**{**parts, "model": last}, second=TwoStageTraining(first, texts_of(other)))


def test_a_model_of_another_start_is_refused():
    parts, other = simulate_parts(benchmarks=["boolq"]), trained(1, "other", "base", "corpus0")
    last = trained(1, parts["model"].artifact.digest, "first", "set0")
    second = TwoStageTraining(other, texts_of(parts["corpus"].examples))
    with pytest.raises(ArtifactError, match="cells.first is .* was not trained from it"):
        make_cell(**{**parts, "model": last}, second=second)


def test_a_series_along_the_epochs_for_each_stage_and_scope_and_one_chart_of_all():
    cells = name_apart([two_stage(stage, scope, epochs)
                        for stage in ("pretraining", "both") for scope in ("whole", "output")
                        for epochs in (1, 3)])  # fmt: skip
    made = compute_statistics("trial", 0, cells, QUICK)
    sweeps = find_sweeps(made.pooled, made.trends, series_settings(cells))
    assert [sweep.levels for sweep in sweeps] == [[1, 3]] * 4
    shared = "\n".join(sweep.shared_text for sweep in sweeps)
    assert "members in both stages, output scored" in shared
    assert has_several_panels(made.pooled)
    panels = stage_chart(made.pooled, QUICK).axes
    assert [axes.get_title(loc="left") for axes in panels] == [
        f"members in {place}\n{scope} scored"
        for scope in ("whole", "output") for place in ("pretraining", "both stages")
    ]  # fmt: skip
    assert all(len(axes.get_lines()) > 3 for axes in panels)
    assert sweeps[1].distinguishing_text(sweeps) == "members in both stages, whole scored"
    once = made.pooled[made.pooled["epochs"] == 1]
    low, high = stage_chart(once, QUICK).axes[0].get_xlim()
    assert low < 1 < high  # methods stand beside each other, also where nothing was varied


def test_a_chart_by_stage_has_one_point_for_each_number_of_epochs():
    """Of another layout, which is another recipe, there is another chart."""
    cells = name_apart([two_stage(stage, epochs=epochs, layout=layout)
                        for stage in ("pretraining", "both") for layout in ("packed", "padded")
                        for epochs in (1, 3)])  # fmt: skip
    found = rows_by_condition_family(compute_statistics("trial", 0, cells, QUICK).pooled)
    assert [name.rpartition("-")[2] for name in found] == ["layout_packed", "layout_padded"]
    for name, rows in found.items():
        for panel in stage_chart(rows, QUICK, name).axes:
            assert all(len(line.get_xdata()) <= 2 for line in panel.get_lines())


def test_one_stage_has_no_such_chart(make):
    assert not has_several_panels(
        compute_statistics("trial", 0, [make(benchmarks=["boolq"])], QUICK).pooled
    )
