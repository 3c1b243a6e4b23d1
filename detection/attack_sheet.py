"""The data sheet of a trained attack as Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from contamination.core.report.tables import escape_markdown, markdown_table
from contamination.core.statistics.metrics import metric_title
from contamination.core.terminal import counted
from contamination.detection.attack_file import CellRecord, DataSheet, Result, TrainedAttack

DIGEST_CHARACTERS = 12


def format_data_sheet(attack: TrainedAttack) -> str:
    """Returns what the attack was trained on, its results on what was held out, and its limits."""
    return "\n".join(_lines(attack))


def _lines(attack: TrainedAttack) -> Iterator[str]:
    sheet = attack.sheet
    settings = ", ".join(f"{name} {value}" for name, value in sheet.settings.items())
    yield from (
        escape_markdown(f"LT-MIA, trained on {sheet.date}. Licence: {sheet.licence}."),
        "",
        f"- Network: {len(attack.network.features)} numbers per token, "
        f"{_count_weights(attack):,} weights.",
        "- " + escape_markdown(f"Training: seed {sheet.seed}, {settings}."),
        "- " + escape_markdown(f"Benchmarks trained on: {', '.join(sheet.benchmarks)}."),
        "- " + escape_markdown(f"Benchmarks held out: {', '.join(sheet.held_out_benchmarks)}."),
        f"- Checksum: {attack.checksum[:DIGEST_CHARACTERS]}.",
        "",
        "## Results",
        "",
        "Means over cells and benchmarks with 95% intervals (Student's, over draws of members). "
        "*LT-MIA more* is LT-MIA minus the row's method, paired. The intervals are not "
        "corrected for the number of comparisons. "
        f"{_describe_dependence(sheet)}",
    )
    groups = dict.fromkeys((r.cells, r.benchmarks) for r in sheet.results)
    for cells, benchmarks in groups:
        results = [r for r in sheet.results if (r.cells, r.benchmarks) == (cells, benchmarks)]
        yield from ("", _title(results[0]), "", _result_table(results))
        for metric in dict.fromkeys(r.metric for r in results if r.left_out):
            names = next(r.left_out for r in results if r.metric == metric)
            reason = f"{metric_title(metric)} is without {', '.join(names)}: too few texts."
            yield from ("", escape_markdown(reason))
    yield from ("", "## Cells", "", _cell_table(sheet))
    if sheet.limits:
        yield from ("", "## Limits", "", *(f"- {escape_markdown(text)}" for text in sheet.limits))


def _describe_dependence(sheet: DataSheet) -> str:
    cells, references = sheet.held_out_cells, {cell.reference for cell in sheet.held_out_cells}
    return (
        f"The {len(cells)} held-out cells share {len(references)} "
        f"{'models' if len(references) > 1 else 'model'} before the members and the pools of "
        "texts, so an interval is over draws of members given these, not over models or texts."
    )


def _count_weights(attack: TrainedAttack) -> int:
    return sum(array.size for array in attack.network.arrays.values())


def _title(result: Result) -> str:
    return escape_markdown(
        f"**Cells {result.cells}, benchmarks {result.benchmarks}** "
        f"({counted(result.n_cells, 'cell')}, {counted(result.n_benchmarks, 'benchmark')}, "
        f"{counted(result.members, 'member')} and {counted(result.nonmembers, 'non-member')})"
    )


def _result_table(results: list[Result]) -> str:
    metrics = [*dict.fromkeys(r.metric for r in results)]
    header = ["method"]
    for metric in metrics:
        name = metric_title(metric)
        header += [name, f"LT-MIA more: {name}"]
    rows = []
    for method in dict.fromkeys(r.method for r in results):
        by_metric = {r.metric: r for r in results if r.method == method}
        row = [method]
        for metric in metrics:
            r = by_metric[metric]
            row.append(f"{r.value:.3f} [{r.low:.3f}, {r.high:.3f}]")
            paired = f"{r.difference:+.3f} [{r.difference_low:+.3f}, {r.difference_high:+.3f}]"
            row.append("–" if method == results[0].method else paired)
        rows.append(row)
    return markdown_table(header, rows)


def _cell_table(sheet: DataSheet) -> str:
    rows = [
        [use, cell.name, str(cell.seed), _shown_digest(cell)]
        for use, cells in (("trained on", sheet.cells), ("held out", sheet.held_out_cells))
        for cell in cells
    ]
    return markdown_table(["", "model", "seed", "weights"], rows)


def _shown_digest(cell: CellRecord) -> str:
    if cell.weights:
        return cell.weights[:DIGEST_CHARACTERS]
    return f"only the folder's hash: {cell.model[:DIGEST_CHARACTERS]}"
