"""The summary after scoring: metrics if the texts are labelled, else the likeliest members.

Also exports the scores with the examples' columns and p-values.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from contamination.core.statistics.estimates import ALL_BENCHMARKS, Estimate, confidence_interval
from contamination.core.statistics.significance import clustered_p_values, conformal_p_values
from contamination.core.table_files import write_csv
from contamination.core.terminal import fit_columns
from contamination.core.user_files import atomic_output_file
from contamination.data.texts import Text, Texts, clusters_of, release_memory
from contamination.detection.evaluation import (
    CONFIDENCE,
    METRICS,
    BenchmarkEstimates,
    MethodKey,
    estimate_benchmarks_and_all,
    group_by_method,
    ranked_texts,
    tidy_estimates,
)
from contamination.detection.flags import (
    count_flags,
    describe_contamination,
    describe_flags,
    merge_flag_counts,
)
from contamination.detection.scores import (
    COLUMNS,
    FILE,
    Scores,
    scores_origin,
    to_arrow,
    write_score_tables,
)

LIKELIEST_SHOWN = 5


def with_ranks(table: pd.DataFrame) -> pd.DataFrame:
    """Adds each text's rank within its method and variant; 1 is the likeliest member.

    The rank of a text that is not ranked is <NA>.
    """
    scores = table["score"].where(table["ranked"])
    rank = scores.groupby([table["method"], table["variant"]]).rank(ascending=False, method="min")
    return table.assign(rank=rank.astype("Int64"))


def summarise_scores(
    scores: pd.DataFrame | Callable[[], Iterable[pd.DataFrame]],
    examples: Sequence[Text],
    blind: bool = True,
    results: Path | None = None,
    notes: Sequence[str] = (),
) -> str:
    """Summarises the scores of the ranked texts.

    With members and non-members this is a table of metrics with intervals, otherwise a list of the
    likeliest members.

    Args:
        scores: columns example_id, method, variant, score, flag and ranked; or a function that
            reads them in parts, each with one method and variant's rows on all texts.
        examples: the texts, with labels if known.
        blind: whether to add the blind baseline. It assumes texts that were sampled one by one;
            pieces of one text reveal each other's label.
        results: a JSON file for the table's numbers (`tidy_estimates`) and all notes, or None.
        notes: notes on the texts, printed first.

    Returns:
        The notes and flags, followed by the summary.
    """

    def read() -> Iterable[pd.DataFrame]:
        return [scores] if isinstance(scores, pd.DataFrame) else scores()

    texts = ranked_texts(examples, next(iter(read())))
    release_memory()
    flag_notes = describe_flags(merge_flag_counts(map(count_flags, read())))
    notes = [*notes, *flag_notes, *describe_contamination(texts)]
    release_memory()
    is_labelled = {True, False} <= set(texts.column("label").unique().to_pylist())
    groups = (
        estimate_benchmarks_and_all(lambda: group_by_method(read()), texts, blind)
        if is_labelled
        else []
    )
    blocks = [_format_group(group, len(groups)) for group in groups]
    if results is not None:
        group_notes = [note for group in groups for note in group.notes]
        write_results_json(results, tidy_estimates(groups), [*notes, *group_notes])
    if not groups:
        blocks = ["\n".join(_iter_likeliest_lists(group_by_method(read()), texts))]
    return "".join(f"{line}\n" for line in notes) + "\n\n".join(blocks)


def write_results_json(path: Path, results: pd.DataFrame, notes: Sequence[str]) -> None:
    """Writes the rows of the results and the notes as JSON."""
    rows = json.loads(results.to_json(orient="records", double_precision=15))
    with atomic_output_file(path) as temporary:
        temporary.write_text(json.dumps({"notes": [*notes], "results": rows}, indent=1) + "\n")


def _format_group(group: BenchmarkEstimates, groups: int) -> str:
    name = group.name or ("of no benchmark" if groups > 1 else "texts")
    if group.name == ALL_BENCHMARKS:
        name = f"{ALL_BENCHMARKS}, the mean over {groups - 2} benchmarks"
    if group.needs:
        return f"{name}: needs {group.needs}"
    sizes = f"{group.members} members, {group.nonmembers} non-members{group.clusters_text}"
    heading = f"{name}: {sizes}"
    if not group.estimates:
        return f"{heading}: no metric without both"
    rows = [
        [*method, *(format_estimate(by_metric[m.name]) for m in METRICS)]
        for method, by_metric in group.estimates.items()
    ]
    table = fit_columns(["method", "variant", *(m.title for m in METRICS)], rows)
    return "\n".join([f"{heading} (95% intervals)", *group.notes, *table.lines(n_left_aligned=2)])


def format_estimate(estimate: Estimate) -> str:
    """Formats the value with its 95% interval, or says what is missing for an estimate."""
    if estimate.needs:
        return f"needs {estimate.needs}"
    low, high = confidence_interval(estimate, CONFIDENCE)
    return f"{estimate.value:.3f} [{low:.3f}, {high:.3f}]"


def _iter_likeliest_lists(
    scores_by_method: Iterable[tuple[MethodKey, pd.DataFrame]], examples: Texts
) -> Iterator[str]:
    """Yields a list of the highest-scoring texts per method, for texts without labels."""
    ids = examples.column("example_id")
    unknown = examples.column("label").unique().to_pylist() == [None]
    both_kinds = "" if unknown else " of both kinds, so no metric and no blind row"
    yield f"{len(examples)} texts without labels{both_kinds}; the likeliest members by each method:"
    for (method, variant), scores in scores_by_method:
        yield f"{method} {variant}".strip()
        for row in with_ranks(scores.nlargest(LIKELIEST_SHOWN, "score")).itertuples():
            text = examples[pc.index(ids, row.example_id).as_py()].text
            start = " ".join(text.split())[:60]
            yield f"  {row.rank:>4}  {row.score:>12.5g}  {row.example_id:<24} {start}"


CSV = "scores.csv"
CLUSTER = "cluster"
EXAMPLE_COLUMNS = pa.schema(
    [
        ("benchmark", pa.string()),
        ("label", pa.bool_()),
        ("sha256", pa.string()),
        ("contamination", pa.string()),
        ("p_value", pa.float64()),
    ]
)
"""The columns that are added to each score; the text is added only on request."""


def write_exports(out: Path, scores: Scores, examples: Sequence[Text], texts: bool = False) -> None:
    """Writes `scores.parquet` and `scores.csv`, each method's rows in the order of the examples.

    `texts` adds the column text.
    """
    columns = example_columns(examples, texts)

    def tables() -> Iterator[pd.DataFrame]:
        return (with_example_columns(table, columns) for table in scores.tables())

    out.mkdir(parents=True, exist_ok=True)
    schema = pa.schema([*COLUMNS, *EXAMPLE_COLUMNS, *([("text", pa.string())] if texts else [])])
    parts = (to_arrow(table, schema) for table in tables())
    write_score_tables(out / FILE, parts, scores_origin(scores.artifact), schema)
    with atomic_output_file(out / CSV) as temporary:
        for number, table in enumerate(tables()):
            write_csv(temporary, with_ranks(table), append=number > 0)


def example_columns(examples: Sequence[Text], texts: bool = False) -> pd.DataFrame:
    """Returns EXAMPLE_COLUMNS without the p-value, and optionally text, indexed by example_id.

    The order is that of the examples. Texts with clusters also have the number of theirs in
    `cluster`.
    """
    names = [name for name in EXAMPLE_COLUMNS.names if name != "p_value"]
    rows = {name: [getattr(e, name) for e in examples] for name in names}
    if texts:
        rows["text"] = [e.text for e in examples]
    table = pd.DataFrame(rows, index=[e.example_id for e in examples])
    clusters = clusters_of(examples)
    if clusters is not None:
        table[CLUSTER] = clusters
    return table.astype({"label": "boolean"})


def with_example_columns(table: pd.DataFrame, columns: pd.DataFrame) -> pd.DataFrame:
    """Adds the examples' columns and a p-value to one method's scores, in the examples' order."""
    joined = table.set_index("example_id").loc[columns.index].join(columns)
    joined["p_value"] = p_values(joined)
    joined = joined.drop(columns=CLUSTER, errors="ignore")
    return joined.rename_axis("example_id").reset_index()


def p_values(table: pd.DataFrame) -> pd.Series[float]:
    """Returns the p-value of each ranked text against its benchmark's ranked non-members.

    A non-member is compared with the other non-members, outside its own cluster. See
    `conformal_p_values` and `clustered_p_values` in `core.statistics.significance`.

    Args:
        table: columns benchmark, label, ranked and score; `cluster` if the texts have clusters.

    Returns:
        The p-values; NaN for texts that are not ranked or have no non-members to compare with.
    """
    p_value = pd.Series(np.nan, table.index)
    for _, rows in table[table["ranked"].astype(bool)].groupby("benchmark"):
        is_null = rows["label"].eq(False).fillna(False).to_numpy(bool)
        values = rows["score"].to_numpy()
        if is_null.any() and CLUSTER in rows:
            clusters = rows[CLUSTER].to_numpy(np.intp)
            p_value[rows.index] = clustered_p_values(
                values, clusters, values[is_null], clusters[is_null]
            )
        elif is_null.any():
            p_value[rows.index] = conformal_p_values(values, values[is_null], is_null)
    return p_value
