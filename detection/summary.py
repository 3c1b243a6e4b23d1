"""What a user sees after scoring texts of their own: metrics where labels are known, ranks else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from core.bootstrap import resample
from core.estimates import ALL, Estimate, estimate, interval, mean_over, needs_over
from core.metrics import AUROC, Scores, chosen_metrics
from core.seeds import derive
from detection.blind import BLIND, blind_baseline, obstacle, warning
from detection.flags import counted, said, together
from detection.texts import Text, Texts, release

METRICS = chosen_metrics([0.05], [0.95])
DRAWS, CONFIDENCE, SEED = 1_000, 0.95, 0
SHOWN = 5
POOLED = "pooled over all texts"
"""Unlike the mean over benchmarks, it also compares members of one with non-members of another."""

Key = tuple[str, str]
Read = Callable[[], Iterable[tuple[Key, pd.DataFrame]]]
Estimates = dict[tuple[str, str], dict[str, Estimate]]
"""(method, variant) → metric → estimate."""


def ranked(table: pd.DataFrame) -> pd.DataFrame:
    """The scores with each text's rank by its method and variant; 1 is the likeliest member.

    What is not ranked has none (<NA>).
    """
    scores = table["score"].where(table["ranked"])
    rank = scores.groupby([table["method"], table["variant"]]).rank(ascending=False, method="min")
    return table.assign(rank=rank.astype("Int64"))


def split(scores: pd.DataFrame, examples: Sequence[Text]) -> tuple[Scores, Scores]:
    """One method's scores of the members and of the non-members among the examples."""
    values = scores.set_index("example_id")["score"]
    members = [e.example_id for e in examples if e.label is True]
    nonmembers = [e.example_id for e in examples if e.label is False]
    return values[members].to_numpy(), values[nonmembers].to_numpy()


def summary(
    scores: pd.DataFrame | Callable[[], Iterable[pd.DataFrame]],
    examples: Sequence[Text],
    blind: bool = True,
) -> str:
    """A table of metrics with intervals where there are both kinds, else the likeliest members.

    Args:
        scores: example_id, method, variant, score, flag, ranked; or what reads them in parts, each
            a method and variant's rows on all texts.
        examples: the texts, with labels where they are known.
        blind: add the blind baseline, which takes texts that were drawn one by one: pieces of one
            text give each other away.

    Returns:
        That of the ranked texts, below what is out of the ordinary about the scores.
    """

    def read() -> Iterable[pd.DataFrame]:
        return [scores] if isinstance(scores, pd.DataFrame) else scores()

    texts = _ranked_texts(examples, next(iter(read())))
    release()
    notes = "".join(f"{line}\n" for line in said(together(map(counted, read()))))
    release()
    return notes + _summary(lambda: _by_method(read()), texts, blind)


def _ranked_texts(examples: Sequence[Text], scores: pd.DataFrame) -> Texts:
    """The texts that are ranked, by one method as by all."""
    texts, ids = Texts.of(examples), scores["example_id"][scores["ranked"]]
    is_ranked = pc.is_in(texts.column("example_id"), value_set=pa.array(ids, pa.string()))
    return texts.take(is_ranked.to_numpy())


def _by_method(tables: Iterable[pd.DataFrame]) -> Iterator[tuple[Key, pd.DataFrame]]:
    """Each method and variant's ranked rows: example_id, method, variant, score, ranked."""
    for table in tables:
        rows = table.loc[table["ranked"], ["example_id", "method", "variant", "score", "ranked"]]
        keys = rows[["method", "variant"]].drop_duplicates()
        for method, variant in keys.itertuples(index=False):
            own = (rows["method"] == method) & (rows["variant"] == variant)
            yield (method, variant), rows if own.all() else rows[own]


def _summary(read: Read, examples: Texts, blind: bool) -> str:
    if len(set(examples.column("label").unique().to_pylist()) - {None}) < 2:
        return "\n".join(_likeliest(read(), examples))
    names = sorted({e.benchmark for e in examples})
    groups = {name: [e for e in examples if e.benchmark == name] for name in names}
    found = {name: _estimates(name, read(), texts, blind) for name, texts in groups.items()}
    if len(names) == 1:
        return _shown(names[0] or "texts", groups[names[0]], found[names[0]])
    parts = [_mean(groups, found)]
    parts += [_shown(n or "of no benchmark", texts, found[n]) for n, texts in groups.items()]
    pooled = _estimates(POOLED, read(), examples, blind)
    return "\n\n".join([*parts, _shown(POOLED, examples, pooled)])


def _estimates(
    name: str, scores_of: Iterable[tuple[Key, pd.DataFrame]], examples: Sequence[Text], blind: bool
) -> Estimates:
    """By method and variant; none where the examples are of one kind. `name` seeds the draws."""
    found: Estimates = {}
    for method, scores in scores_of:
        members, nonmembers = split(scores, examples)
        if len(members) and len(nonmembers):
            drawn = resample(len(members), len(nonmembers), DRAWS, derive(SEED, name))
            found[method] = estimate(members, nonmembers, drawn, METRICS)
    texts, member = _labelled(examples)
    if blind and found and not obstacle(texts, member):
        made = blind_baseline(texts, member, derive(SEED, BLIND, name))
        sides = np.flatnonzero(member), np.flatnonzero(~member)
        found[BLIND, ""] = made.estimates(*sides, METRICS, DRAWS)
    return found


def _labelled(examples: Sequence[Text]) -> tuple[list[str], NDArray[np.bool_]]:
    known = [e for e in examples if e.label is not None]
    return [e.text for e in known], np.array([e.label for e in known], bool)


def _mean(groups: Mapping[str, Sequence[Text]], found: Mapping[str, Estimates]) -> str:
    """The table of "all", as in a report: the mean over benchmarks, where each was measured."""
    head = f"{ALL}, the mean over {len(groups)} benchmarks"
    lacks = {n or "those of no benchmark": AUROC.needs(*_sizes(g)) for n, g in groups.items()}
    if needs := needs_over(lacks):
        return f"{head}: needs {needs}"
    lines: Estimates = {}
    for method in next(iter(found.values())):
        by_name = {name: by[method] for name, by in found.items() if method in by}
        if len(by_name) == len(found):  # the blind baseline may lack texts
            lines[method] = {
                m.name: mean_over({name: line[m.name] for name, line in by_name.items()})
                for m in METRICS
            }
    return _shown(head, [e for texts in groups.values() for e in texts], lines)


def _sizes(examples: Sequence[Text]) -> tuple[int, int]:
    """How many are members, and how many non-members."""
    labels = [e.label for e in examples]
    return labels.count(True), labels.count(False)


def _shown(name: str, examples: Sequence[Text], found: Estimates) -> str:
    members, nonmembers = _sizes(examples)
    head = f"{name}: {members} members, {nonmembers} non-members"
    if not found:
        return f"{head}: no metric without both"
    names, variants = zip(("", "variant"), *found, strict=True)
    long, width = max(20, 2 + max(map(len, names))), 2 + max(map(len, variants))
    texts = {method: [figure(line[m.name]) for m in METRICS] for method, line in found.items()}
    heads = [metric.title for metric in METRICS]
    wide = 2 + max(len(text) for texts_of in (heads, *texts.values()) for text in texts_of)
    rows = [f"{'method':{long}}{'variant':{width}}" + "".join(f"{h:>{wide}}" for h in heads)]
    for (method, variant), cells in texts.items():
        rows.append(f"{method:{long}}{variant:{width}}" + "".join(f"{c:>{wide}}" for c in cells))
    return "\n".join([f"{head} (95% intervals)", *_on_texts(examples, found), *rows])


def _on_texts(examples: Sequence[Text], found: Estimates) -> list[str]:
    """What stands above the table of its texts: that they alone tell, or are too few."""
    if (BLIND, "") not in found:
        problem = obstacle(*_labelled(examples))
        return [f"no blind row: {problem}"] if problem else []
    value = found[BLIND, ""][AUROC.name]
    sentence = warning(value.value, *interval(value, CONFIDENCE))
    return [sentence] if sentence else []


def figure(found: Estimate) -> str:
    """The value with its 95% interval, or what the examples lack to carry it."""
    if found.needs:
        return f"needs {found.needs}"
    low, high = interval(found, CONFIDENCE)
    return f"{found.value:.3f} [{low:.3f}, {high:.3f}]"


def _likeliest(scores_of: Iterable[tuple[Key, pd.DataFrame]], examples: Texts) -> Iterator[str]:
    """The first few by each method: without labels nothing can be said of how good they are."""
    ids = examples.column("example_id")
    unknown = examples.column("label").unique().to_pylist() == [None]
    known = "" if unknown else " of both kinds, so no metric and no blind row"
    yield f"{len(examples)} texts without labels{known}; the likeliest members by each method:"
    for (method, variant), scores in scores_of:
        yield f"{method} {variant}".strip()
        for row in ranked(scores.nlargest(SHOWN, "score")).itertuples():
            text = examples[pc.index(ids, row.example_id).as_py()].text
            start = " ".join(text.split())[:60]
            yield f"  {row.rank:>4}  {row.score:>12.5g}  {row.example_id:<24} {start}"
