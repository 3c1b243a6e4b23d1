"""Error rates of the audit of a set of questions, on models with a known past.

    python -m launch -m experiment=benchmark_audit
    python -m perf.benchmark_audit [RUNS, runs] [audits per row, 20, of which parts 2 and 3 take 12]

Each audit draws some questions and as many fresh ones, without replacement, from the examples of
one benchmark (the sides hold 200 of it), and runs the whole audit, blind baseline included:

- *clean*: the model before the contaminated training. Both sides are drawn from members and
  non-members alike. Wanted: "leaked" in at most 5%.
- *shifted*: the same model, but the questions are changed in one of eight ways, so that the two
  sets differ as texts. Wanted: "cannot be determined" in at least 90%, "leaked" in at most 5%.
- *contaminated*: members against non-members, by occurrences: the power. Beside it the power of
  dataset inference as published (Maini et al. 2024: half-splits, a linear model, a t-test; the
  median p-value of 10 splits, doubled).

Scores of the changed texts are stored in RUNS.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from contamination.audits.benchmark import inputs
from contamination.audits.benchmark.comparison import LEAKED, NO_EVIDENCE, UNDETERMINED
from contamination.audits.benchmark.verdict import audit_texts
from contamination.audits.set_tests.dataset_inference import dataset_inference_p_value
from contamination.core.artifacts import is_complete, open_artifact
from contamination.core.seeds import derive_seed
from contamination.data.examples import make_text
from contamination.data.texts import Text, Texts
from contamination.detection.api import score
from contamination.detection.scores import open_scores
from contamination.injection.corpus import open_corpus

KIND, MODEL_KIND = "scores", "model"
SIZES = (20, 50, 100, 200)
VERDICTS = (LEAKED, NO_EVIDENCE, UNDETERMINED)
Outcomes = dict[str, list[str]]
"""The outcome of each audit, by the set that was audited."""
METHODS = ("loss", "zlib", "min_k", "min_k_plus_plus", "gap_k", "surp")
Random = np.random.Generator


def misspelt(text: str, number: int) -> str:
    """Returns the text with two letters swapped inside some of its words of five or more."""
    words, rng = text.split(" "), random_of(text)
    long = [i for i, word in enumerate(words) if len(word) > 4 and word.isalpha()]
    for i in rng.permutation(long)[:number]:
        word, at = words[i], int(rng.integers(1, len(words[i]) - 2))
        words[i] = f"{word[:at]}{word[at + 1]}{word[at]}{word[at + 2 :]}"
    return " ".join(words)


def reordered(text: str) -> str:
    """Returns the text with two pairs of neighbours swapped, before the answer."""
    question, mark, answer = text.partition("\nAnswer: ")
    head, words = question[:10], question[10:].split(" ")  # after "Question: "
    rng = random_of(text)
    for _ in range(2 if len(words) > 2 else 0):
        at = int(rng.integers(1, len(words)))
        words[at - 1], words[at] = words[at], words[at - 1]
    return f"{head}{' '.join(words)}{mark}{answer}"


def random_of(text: str) -> Random:
    """Returns random numbers that depend on the text alone."""
    return np.random.default_rng(derive_seed(0, text))


SHIFTS: Mapping[str, Callable[[str], str]] = {
    "lower case": str.lower,
    "dated": lambda text: f"(As of March 2026) {text}",
    "curly quotes": lambda text: text.replace("'", "\u2019").replace("Question:", "Question :"),
    "no final word": lambda text: text.rsplit(" ", 1)[0],
    "a polite beginning": lambda text: text.replace("Question: ", "Question: Could you tell me: "),
    "one word misspelt": partial(misspelt, number=1),
    "two words misspelt": partial(misspelt, number=2),
    "two swapped neighbours": reordered,
}


SPOILED = ("one word misspelt", "two words misspelt", "two swapped neighbours")
"""Changes that make a text less familiar: made to the fresh ones, they look like a leak."""


def main(runs: str = "runs", audits: str = "20") -> None:
    """Prints a table of verdicts for each part."""
    folder, repetitions = Path(runs), int(audits)
    (clean_path, _, examples), *cells = find_cells(folder)
    clean_scores = stored_scores(clean_path)
    cases = [(benchmark, size) for benchmark in benchmarks_of(examples) for size in SIZES]

    def verdicts(
        draw_texts: Callable[[str, int, int], Texts], scores: pd.DataFrame, repetitions: int
    ) -> Outcomes:
        return {
            f"{benchmark}, {size}": [
                verdict_of(draw_texts(benchmark, size, seed), scores, seed)
                for seed in range(repetitions)
            ]
            for benchmark, size in cases
        }

    alike = verdicts(partial(draw_alike, examples), clean_scores, repetitions)
    repetitions = max(1, repetitions * 3 // 5)
    print_table("Clean model", alike, VERDICTS)
    for name, change in SHIFTS.items():
        changed = [with_text(example, change(example.text)) for example in examples]
        scores = pd.concat([clean_scores, score_changed(clean_path, changed, folder)])
        draw_changed = partial(draw_shifted, examples, changed, spoil=name in SPOILED)
        shifted = verdicts(draw_changed, scores, repetitions)
        print_table(f"Questions that differ as texts: {name}", shifted, VERDICTS)
    for path, occurrences, cell_examples in cells:
        scores = stored_scores(path)
        found = verdicts(partial(draw_sides, cell_examples), scores, repetitions)
        print_table(f"Members inserted {occurrences} times", found, VERDICTS)
        half_splits = {
            f"{benchmark}, {size}": [
                LEAKED
                if is_found_by_half_splits(
                    draw_sides(cell_examples, benchmark, size, seed), scores, seed
                )
                else NO_EVIDENCE
                for seed in range(repetitions)
            ]
            for benchmark, size in cases
        }
        title = f"The same by half-splits, {occurrences} times"
        print_table(title, half_splits, (LEAKED,))


def find_cells(folder: Path) -> Iterator[tuple[Path, int, list[Text]]]:
    """Yields each scores folder with its occurrences and labelled examples; the clean model first.

    A clean model is from elsewhere, or its training corpus is not the one whose examples it scores;
    its occurrences are 0.
    """
    cells = []
    for path in sorted((folder / "scores").iterdir()):
        config = open_artifact(path, KIND).config()
        corpus, model = Path(config["examples"]["path"]), Path(config["model"]["path"])
        if not corpus.is_dir():  # changed texts, which an earlier run scored
            continue
        is_clean = not is_complete(model) or corpus != Path(
            open_artifact(model, MODEL_KIND).config()["corpus_folder"]
        )
        occurrences = (
            0 if is_clean else open_artifact(corpus, "corpus").config()["occurrences"]["count"]
        )
        rows = open_corpus(corpus).examples.itertuples()
        examples = [make_text(r.example_id, r.text, bool(r.member), r.benchmark) for r in rows]
        cells.append((path, occurrences, examples))
    yield from sorted(cells, key=lambda cell: cell[1])


def stored_scores(path: Path) -> pd.DataFrame:
    """Returns the scores of the audit's methods."""
    table = open_scores(path).table
    return table[table["method"].isin(METHODS)]


def score_changed(path: Path, texts: list[Text], folder: Path) -> pd.DataFrame:
    """Returns the scores of changed texts by the model of a scores folder."""
    model = open_artifact(path, KIND).config()["model"]["path"]
    return score(Texts.of(texts), model, METHODS, folder=folder)


def benchmarks_of(examples: list[Text]) -> list[str]:
    """Returns the names of the examples' benchmarks."""
    return sorted({example.benchmark for example in examples})


def with_text(example: Text, text: str) -> Text:
    """Returns the example with another text, under an id of its own."""
    return make_text(f"changed/{example.example_id}", text, None, example.benchmark)


def draw(
    examples: list[Text], benchmark: str, sides: tuple[bool, ...], size: int, seed: int
) -> list[Text]:
    """Returns `size` examples of a benchmark that are members or not as `sides` says."""
    pool = [e for e in examples if e.benchmark == benchmark and bool(e.label) in sides]
    rng = np.random.default_rng(derive_seed(seed, benchmark, size, *sides))
    return [pool[i] for i in rng.choice(len(pool), size, replace=False)]


def labelled(questions: list[Text], fresh: list[Text]) -> Texts:
    """Returns both sides as the audit labels them, as one set without a benchmark's name."""
    sides = ((questions, True), (fresh, False))
    return Texts.of(
        replace(text, label=label, benchmark="") for side, label in sides for text in side
    )


def draw_alike(examples: list[Text], benchmark: str, size: int, seed: int) -> Texts:
    """Returns questions and fresh ones that are both drawn from all examples."""
    both = draw(examples, benchmark, (True, False), 2 * size, seed)
    return labelled(both[:size], both[size:])


def draw_shifted(
    examples: list[Text],
    changed: list[Text],
    benchmark: str,
    size: int,
    seed: int,
    spoil: bool = False,
) -> Texts:
    """Returns the same with the questions changed, or with `spoil` the fresh ones."""
    both = draw(examples, benchmark, (True, False), 2 * size, seed)
    changed_by_id = {text.example_id: text for text in changed}
    other = [changed_by_id[f"changed/{text.example_id}"] for text in both[:size]]
    return labelled(both[size:], other) if spoil else labelled(other, both[size:])


def draw_sides(examples: list[Text], benchmark: str, size: int, seed: int) -> Texts:
    """Returns members as questions and non-members as fresh ones."""
    sides = ((True,), (False,))
    return labelled(*(draw(examples, benchmark, side, size, seed) for side in sides))


def verdict_of(texts: Texts, scores: pd.DataFrame, seed: int) -> str:
    """Returns the audit's verdict at level 0.05."""
    found = audit_texts(texts, ["model"], lambda *_: scores, inputs.FRESH, seed, 0.05)
    (verdict,) = found.verdicts.values()
    return verdict


def is_found_by_half_splits(texts: Texts, scores: pd.DataFrame, seed: int) -> bool:
    """Returns whether dataset inference as published finds a leak at level 0.05."""
    ids = texts.column("example_id").to_pylist()
    table = scores.pivot_table(index="example_id", columns=["method", "variant"], values="score")
    is_suspect = np.array([bool(text.label) for text in texts])
    return dataset_inference_p_value(table.loc[ids].to_numpy().T, is_suspect, seed) <= 0.05


def print_table(title: str, rows: dict[str, list[str]], columns: tuple[str, ...]) -> None:
    """Prints the share of each outcome per row, and over all rows."""
    print(f"\n## {title}\n\n| sets | audits | {' | '.join(columns)} |")
    print("|---|---:|" + "---:|" * len(columns))
    rows = {**rows, "all": [outcome for row in rows.values() for outcome in row]}
    for name, outcomes in rows.items():
        counts = Counter(outcomes)
        shares = (f"{100 * counts[column] / len(outcomes):.1f}%" for column in columns)
        print(f"| {name} | {len(outcomes)} | {' | '.join(shares)} |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
