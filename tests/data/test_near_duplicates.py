"""Members and non-members that are all but equal, found, named and kept out."""

import json
import random
import re
import unicodedata
from dataclasses import replace
from itertools import product

import pandas as pd
import pytest

from contamination.core.errors import ConfigError
from contamination.data.config import BenchmarkConfig
from contamination.data.near_duplicates import (
    ComparedItem,
    NearDuplicateFilter,
    NearDuplicateHasher,
    duplicates_on_other_side,
)
from contamination.injection.corpus import open_corpus
from contamination.injection.pool import draw_held_out, draw_pool, read_candidates
from contamination.injection.run import run
from contamination.injection.token_stream import Tokenizer

WORDS = [f"word{i}" for i in range(60)]


def words_of(text):
    """Of ASCII texts."""
    return re.findall("[a-z0-9]+", text.lower())


def near(one, other):
    """The definition, item by item."""
    grams = [
        {tuple(words[i : i + 13]) for part in item.parts for words in [words_of(part)]
         for i in range(len(words) - 12)}
        for item in (one, other)
    ]  # fmt: skip
    wholes = [{"".join(words_of(w)) for w in item.wholes} - {""} for item in (one, other)]
    return bool(grams[0] & grams[1] or wholes[0] & wholes[1])


def item(text, group=""):
    return ComparedItem([text], [text], group)


def found(items, members):
    return duplicates_on_other_side(items, members, NearDuplicateHasher(items))


@pytest.mark.parametrize("seed", range(10))
def test_pairs_across_equal_the_definition(seed):
    rng = random.Random(seed)
    texts = [" ".join(rng.choices(WORDS, k=rng.choice([0, 1, 2, 5, 12, 13, 14, 40])))
             for _ in range(40)]  # fmt: skip
    for text in texts[:20]:  # parts of other texts, and the same in other dress
        words = text.split()
        start = rng.randrange(len(words) + 1)
        part = words[start : start + rng.choice([12, 13, 14, 99])]
        texts.append(" ".join([*rng.choices(WORDS, k=3), *part]))
        texts.append(text.upper().replace(" ", rng.choice([" \n", ", ", " — ", "-"])) + "!")
    items = [item(text) for text in texts]
    members = [rng.random() < 0.5 for _ in items]
    expected = {}
    for i, j in product(range(len(items)), repeat=2):
        if members[i] != members[j] and near(items[i], items[j]):
            expected.setdefault(i, j)
    assert expected
    assert found(items, members) == expected

    apart = NearDuplicateFilter(NearDuplicateHasher(items))
    taken = [one for one in items if apart.accept(one)]
    assert not any(near(a, b) for n, a in enumerate(taken) for b in taken[:n])
    for one in items:
        assert one in taken or any(near(one, other) for other in taken)


TEMPLATE = "Read the following question with care and then choose the one best answer: {} {}"


def test_what_a_template_adds_is_no_near_duplicate():
    items = [item(TEMPLATE.format(i, WORDS[i] * 2)) for i in range(20)]
    assert found(items, [i % 2 == 0 for i in range(20)]) == {}
    items += [item(TEMPLATE.format(3, WORDS[3] * 2).upper())]
    assert found(items, [i % 2 == 0 for i in range(21)]) == {3: 20, 20: 3}


@pytest.mark.parametrize("text", ["Is it so?", TEMPLATE.format("a", "b"), " ".join(WORDS[:13])])
def test_equal_texts_are_near_duplicates_however_many_there_are(text):
    items = [item(text if i % 4 else text.upper()) for i in range(8)] + [item("another")]
    expected = {i: int(i % 2 == 0) for i in range(8)}
    assert found(items, [i % 2 == 0 for i in range(9)]) == expected


def test_each_benchmark_has_a_template_of_its_own():
    own = {group: TEMPLATE.replace("question", f"question-{group}") for group in "abcd"}
    items = [item(own[group].format(group, i), group) for group in own for i in range(5)]
    members = [i % 2 == 0 for i in range(20)]
    assert found(items, members) == {}
    items[7] = item(items[2].wholes[0].upper(), "b")  # a text of another benchmark
    assert found(items, members) == {2: 7, 7: 2}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a well-known man", "A well known man"),
        ("a well-known man", "a wellknown man"),
        ("The U.S. don't", "the US dont"),
        ("caf\u00e9 au lait", unicodedata.normalize("NFD", "Caf\u00e9 au lait")),
        ("\uff26\uff55\uff4c\uff4c width", "full width"),
        ("the \ufb01rst stra\u00dfe", "The first STRASSE"),
        ("all right \U0001f44d\U0001f3fd", "all right"),
        ("all \u2764\ufe0f right", "all right"),
        ("soft\u00adware", "software"),
        ("e-mail", "email"),
        ("covid-19, in 2020-2021", "covid 19 in 2020 2021"),
        ("What is 12 + 3?", "what is 12+3"),
        ("x = \u22123", "x=-3"),
        ("\u00bd of it", "1/2 of it"),
        ("wait ... 3 times - or 4", "wait 3 times or 4"),
        ("wait...3 times", "wait 3 times"),
        ("3 apples", "3apples"),
        ("1  2\n3", "1 2 3"),
    ],
)
def test_case_punctuation_emoji_and_spelling_in_unicode_do_not_tell_texts_apart(one, other):
    assert found([item(one), item(other)], [True, False]) == {0: 1, 1: 0}
    filler = " ".join(WORDS[:12])
    parts = [ComparedItem([f"{filler} {text} {filler}"], []) for text in ("x", "y")]
    assert found(parts, [True, False]) == {}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("caf\u00e9", "cafe"),
        ("\u0915\u093f", "\u0915\u0940"),  # Devanagari ki and kii: their vowel signs are marks
        ("step 1", "step 2"),
        ("\U0001f44d", "\U0001f44e"),  # without any letter
        ("What is 12 + 3?", "What is 1 + 23?"),
        ("What is 12, 3?", "What is 1, 23?"),
        ("1.5 dollars", "15 dollars"),
        (".5 dollars", "5 dollars"),
        ("3,000", "3000"),
        ("x = -3", "x = 3"),
        ("x = \u22123", "x = 3"),
        ("x = -.5", "x = .5"),
        ("x != 3", "x = 3"),
        ("2 + 3", "2 * 3"),
        ("2 - 3", "2 \u00d7 3"),
        ("a + b = c", "a b c"),
        ("C++ is great", "C# is great"),
        ("C++ is great", "C is great"),
        ("Is 3 < 5?", "Is 3 > 5?"),
        ("5% of 20", "5 of 20"),
        ("2^3", "23"),
        ("1/2", "1 2"),
    ],
)
def test_letters_digits_marks_numbers_and_operators_do(one, other):
    assert found([item(one), item(other)], [True, False]) == {}


def test_operators_are_no_words_in_a_row():
    items = [item(f"{'=' * 20} {name} <br /><br /> <br /><br />") for name in ("one", "two")]
    assert found(items, [True, False]) == {}


def test_words_in_a_row_are_split_at_what_is_no_letter():
    one = "it is a well-known fact that caf\u00e9s in the old town (there) close at \u2460 o'clock"
    other = unicodedata.normalize("NFD", one).replace("-", " ").replace("'", "\u2019").upper()
    items = [
        ComparedItem([f"{start} {text}"], []) for start, text in (("first", one), ("then", other))
    ]
    assert found(items, [True, False]) == {0: 1, 1: 0}


PASSAGE = (
    "it was {} who first crossed the wide and frozen river by night on the old bridge of stone"
)


@pytest.fixture
def own(stage, tmp_path):
    """A stage whose one benchmark has 60 rows: 30 pairs, or as many texts that are all apart."""

    def made(pairs, **fields):
        names = random.Random(0).sample(range(10_000, 99_999), 60)
        rows = [{"question": f"Who is {n}?", "answer": f"{n} is the name of somebody {n + 1}"}
                for n in names]  # fmt: skip
        if pairs:
            for first, second in zip(rows[::2], rows[1::2], strict=True):
                second["question"] = first["question"].upper().replace("WHO IS", "who  is,")
        path = tmp_path / "mine.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        source = {
            "rows": {"_target_": "contamination.data.readers.files.FileRows", "path": str(path)},
            "fields": {"question": "{question}", "answer": "{answer}"},
        }
        config = BenchmarkConfig(
            template="Q: {question}\nA: {answer}", distinct="question", sources={"file": source}
        )
        injection = replace(stage.injection, **{"budget_tokens": 20_000, "held_out": 5, **fields})
        return replace(
            stage, benchmark={"mine": config}, injection=injection, runs=str(tmp_path / "runs")
        ).resolved()

    return made


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer("tests/golden/target")


def drawn(stage, tokenizer):
    return draw_pool(stage, read_candidates(stage), tokenizer).examples


def asked(row):
    return " ".join(words_of(json.loads(row.fields)["question"]))


@pytest.mark.parametrize("policy", ["keep", "flag"])
def test_pairs_are_named_on_both_sides(own, tokenizer, policy):
    stage = own(True, near_duplicates=policy, members=20, nonmembers=20)
    pool = drawn(stage, tokenizer)
    rows = {row.example_id: row for row in pool.itertuples()}
    for row in rows.values():
        others = [o.example_id for o in rows.values()
                  if o.member != row.member and asked(o) == asked(row)]  # fmt: skip
        assert row.near_duplicate_of == (others[0] if others else "")
    assert (pool["near_duplicate_of"] != "").sum() > 4


def test_dropped_pairs_leave_one_and_the_pool_is_filled_up(own, tokenizer):
    stage = own(True, near_duplicates="drop")
    candidates = read_candidates(stage)
    made = draw_pool(stage, candidates, tokenizer)
    pool = made.examples
    assert (len(pool), int(pool["member"].sum())) == (24, 12)
    assert len({asked(row) for row in pool.itertuples()}) == 24
    assert (pool["near_duplicate_of"] == "").all()
    (counts,) = made.counts.values()
    assert (counts.drawn, counts.near_duplicates > 4) == (24, True)
    held_out = draw_held_out(stage, candidates, tokenizer, pool)
    both = [asked(row) for row in [*pool.itertuples(), *held_out.itertuples()]]
    assert len(both) == len(set(both)) == 29
    with pytest.raises(ConfigError, match="only 30 of 60 .*near-duplicates of no other .30 are"):
        drawn(own(True, near_duplicates="drop", members=20, nonmembers=20), tokenizer)


def test_dropping_knows_the_template_as_well(own, tokenizer):
    stage = own(False, near_duplicates="drop")
    source = stage.benchmark["mine"].sources["file"]
    prompt = TEMPLATE.format("{question}", "Think it over.")
    source = {**source, "fields": {**source["fields"], "question": prompt}}
    config = replace(stage.benchmark["mine"], sources={"file": source}, distinct=None)
    candidates = read_candidates(replace(stage, benchmark={"mine": config}))
    pool = draw_pool(replace(stage, benchmark={"mine": config}), candidates, tokenizer)
    assert len(pool.examples) == 24
    assert pool.counts["mine"].near_duplicates == 0


def test_without_near_duplicates_the_policy_changes_nothing(own, stage, tokenizer):
    for base in (own(False), stage.resolved()):
        pools = [
            drawn(replace(base, injection=replace(base.injection, near_duplicates=p)), tokenizer)
            for p in ("keep", "flag", "drop")
        ]
        assert (pools[0]["near_duplicate_of"] == "").all()
        pd.testing.assert_frame_equal(pools[0], pools[1])
        pd.testing.assert_frame_equal(pools[0], pools[2])


def test_shared_passages_are_near_duplicates_and_short_answers_are_not(own, tokenizer, tmp_path):
    stage = own(False, members=2, nonmembers=2)
    rows = [{"question": PASSAGE.format(n), "answer": "Yes"} for n in ("Ann", "Bob")]
    rows += [{"question": f"Is {n} small?", "answer": "Yes"} for n in (3, 4)]
    (tmp_path / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    named = set()
    for seed in range(8):  # the two are on different sides in some draws
        pool = drawn(replace(stage, injection=replace(stage.injection, membership_seed=seed)),
                     tokenizer)  # fmt: skip
        named |= {asked(row)[:10] for row in pool.itertuples() if row.near_duplicate_of}
    assert named == {"it was ann", "it was bob"}


def test_a_corpus_counts_and_names_them(own, caplog):
    stage = own(True, members=20, nonmembers=20)
    with caplog.at_level("INFO"):
        corpus = open_corpus(run(stage).path)
    near = corpus.examples[corpus.examples["near_duplicate_of"] != ""]
    counts = corpus.artifact.counts["near_duplicates"]
    assert counts["members"] == near["member"].sum() > 1
    assert counts["nonmembers"] == (~near["member"]).sum() > 1

    def said():
        return [r.message for r in caplog.records if "near-duplicates of one another" in r.message]

    assert f"{counts['members']} members and {counts['nonmembers']} non-members" in said()[0]
    assert len(said()) == 1
    caplog.clear()
    assert run(stage).path == corpus.artifact.path  # found made
    assert len(said()) == 1
    caplog.clear()
    kept = replace(stage, injection=replace(stage.injection, near_duplicates="keep"))
    assert run(kept).path == corpus.artifact.path
    assert not said()


def test_an_unknown_policy_is_refused(change):
    with pytest.raises(ConfigError, match="near_duplicates is 'off': choose from keep, flag, drop"):
        change(near_duplicates="off")
