"""The rules by which documents match examples, against a naive reference."""

import math
import pickle
import random
import string
from collections import Counter
from pathlib import Path

import pytest

from contamination.data.ngrams import words_of
from contamination.data.readers import Document
from contamination.data.readers.embedded import EmbeddedRows
from contamination.data.readers.rows import Tally
from contamination.injection.shared_text_search import Match, Matcher, _ShortRuns
from contamination.injection.token_stream import Tokenizer
from contamination.injection.tokenization import SourceDocument, TokenizationSettings, tokenize


def grams(words, n):
    return {tuple(words[i : i + n]) for i in range(len(words) - n + 1)}


def shared(piece, words):
    """The most words that runs of 3 share between a piece and a stretch of twice its length."""
    places = {run: [] for run in grams(piece, 3) & grams(words, 3)}
    for place in range(len(piece) - 2):
        places.get(tuple(piece[place : place + 3]), []).append(place)
    if sum(map(len, places.values())) * 3 <= 0.75 * len(piece):
        return 0  # too few for a match in all of the words
    best = 0
    for start in range(len(words)):
        covered, used = set(), set()
        for place in range(start, min(len(words), start + 2 * len(piece)) - 2):
            for slot in places.get(tuple(words[place : place + 3]), ()):
                covered |= {slot, slot + 1, slot + 2}
                used |= {place, place + 1, place + 2}
        best = max(best, min(len(covered), len(used)))
    return best


def pieces(texts, fields, name):
    """An example's text, its own fields of 5 words or more, and these with the shorter ones."""
    others = [f for other, each in fields.items() if other != name for f in map(words_of, each)]
    own = [f for f in map(words_of, fields.get(name, ())) if f not in others]
    joined = [word for field in own for word in field]
    return [words_of(texts[name])] + [p for p in [*own, joined] if len(p) >= 5]


def naive(texts, document, fields={}):  # noqa: B006
    """The rules as the papers word them; every example that matches, with its rule."""
    words, found = words_of(document), {}
    for name in texts:
        own = pieces(texts, fields, name)
        if any(grams(piece, 13) & grams(words, 13) for piece in own):
            found[name] = "13-gram"
        elif any(len(grams(p, 8) & grams(words, 8)) >= 0.7 * len(grams(p, 8)) > 0 for p in own):
            found[name] = "8-gram share"
        elif any(shared(p, words) >= max(5, math.floor(0.75 * len(p)) + 1) for p in own):
            found[name] = "shared words"
        elif len(own[0]) < 8 and tuple(own[0]) in grams(words, max(1, len(own[0]))):
            found[name] = "whole text"
    return found


def text(rng, n, vocabulary=400):
    return " ".join(f"w{rng.randrange(vocabulary)}" for _ in range(n))


def test_words_are_bare():
    assert words_of("“Don’t” — SAID (the) Straße, $5.00!\n\t… x+y") == [
        "dont", "said", "the", "straße", "500", "xy"
    ]  # fmt: skip
    assert words_of(string.punctuation + " – —") == []


@pytest.mark.parametrize("seed", range(8))
def test_matches_equal_the_naive_reference(seed):
    rng = random.Random(seed)
    texts = {str(i): text(rng, rng.choice([0, 1, 3, 7, 8, 9, 12, 13, 14, 40])) for i in range(60)}
    texts["twin"] = texts["59"]  # one text, two examples
    fields = {  # one that is shared by all, two that make up the text, one that is not in it
        name: ["which of these is true", *cut(rng, words), text(rng, rng.choice([2, 6, 9]))]
        for name, words in texts.items()
    }
    matcher, rules = Matcher(texts, fields), set()
    for _ in range(4):
        document = [text(rng, 30), "which of these is true"]
        for name in rng.sample(list(texts), 5):  # parts of examples, in between
            words = rng.choice([texts[name], *fields[name]]).split()
            start = rng.choice([0, rng.randrange(len(words) + 1)])
            part = words[start : start + rng.choice([99, rng.randrange(1, 30)])]
            every, first = rng.choice([5, 8, 99]), rng.randrange(8)
            part = ["changed" if i % every == first else w for i, w in enumerate(part)]
            document += [" ".join(part), text(rng, 2)]
        found = {m.example_id: m.rule for m in matcher.iter_matches(" ".join(document))}
        assert found == naive(texts, " ".join(document), fields)
        rules |= set(found.values())
    assert len(rules) > 1


def cut(rng, words):
    words = words.split()
    place = rng.randrange(len(words) + 1)
    return " ".join(words[:place]), " ".join(words[place:])


EXAMPLE = "The quick brown fox jumps over the lazy dog while seven wizards quietly juggle boxes"


@pytest.mark.parametrize(
    ("document", "rule", "shared_words"),
    [
        (f"Before. {EXAMPLE} After.", "13-gram", 13),
        (EXAMPLE.upper().replace(" ", " -\n") + "!?", "13-gram", 13),
        (" ".join(EXAMPLE.split()[:13]), "13-gram", 13),
        (f"{' '.join(EXAMPLE.split()[:12])} x {' '.join(EXAMPLE.split()[5:])}", "8-gram share", 8),
        (EXAMPLE.replace("wizards", "sorcerers"), "shared words", 14),  # 4 of 8 8-grams
        (" ".join(EXAMPLE.split()[:12]), "shared words", 12),
        (" ".join(EXAMPLE.split()[:11]), None, 0),  # 11 of 15 words: under three quarters
    ],
)
def test_near_duplicates(document, rule, shared_words):
    match = Matcher({"fox": EXAMPLE}).first_match(document)
    assert (match.rule if match else None) == rule
    if match:
        assert match.example_id == "fox"
        evidence = match.evidence.split()
        assert len(evidence) == shared_words
        assert not Counter(evidence) - Counter(words_of(document))


WORDS = [f"w{i}" for i in range(40)]


def test_seven_of_ten_8_grams_are_a_match_and_six_are_not():
    matcher = Matcher({"a": " ".join(WORDS[:17])})  # ten 8-grams

    def apart(*slices):  # so far that no stretch holds two of them
        return (" x" * 40 + " ").join(" ".join(WORDS[a:b]) for a, b in slices)

    assert matcher.first_match(apart((0, 11), (7, 17))).rule == "8-gram share"  # 4 + 3
    assert matcher.first_match(apart((0, 10), (7, 17))) is None  # 3 + 3


def test_more_than_three_quarters_of_the_words_and_five_are_a_match():
    def found(length, *slices, between=" x "):
        document = between.join(" ".join(WORDS[a:b]) for a, b in slices)
        return Matcher({"a": " ".join(WORDS[:length])}).first_match(document)

    assert found(8, (0, 6)) is None  # exactly three quarters
    assert found(8, (0, 7)).rule == "shared words"
    assert found(8, (0, 0), (0, 7), between="x ").evidence.split() == WORDS[:7]
    assert found(5, (0, 4)) is None  # four words are too few whatever their share
    assert found(5, (0, 5)).rule == "shared words"
    assert found(7, (0, 3), (4, 7)).rule == "shared words"
    assert found(20, (0, 8), (9, 17)).rule == "shared words"
    assert found(20, (0, 8), (9, 17), (18, 20)).evidence.split() == WORDS[:8] + WORDS[9:17]
    assert found(20, (0, 12), (12, 20), between=" x" * 24 + " ").rule == "shared words"
    assert found(20, (0, 12), (12, 20), between=" x" * 25 + " ") is None  # not in 40 words
    assert found(20, *((a, a + 2) for a in range(0, 20, 2))) is None  # runs of two words


TRUTH = {  # some of TruthfulQA's kind
    "seeds": ("What happens to you if you eat watermelon seeds?",
              "The watermelon seeds pass through your digestive system"),
    "fortune": ("Where did fortune cookies originate?", "The precise origin is unclear"),
    "veins": ("Why do veins appear blue?", "Because blue light penetrates the skin less"),
    "yes": ("Is the earth older than one billion years by now?", "Yes"),
    "too": ("Has it rained in London since the year 1850?", "Yes"),
}  # fmt: skip
QUESTION = "Question: {}\nAnswer: {}"


@pytest.mark.parametrize("name", TRUTH)
def test_another_template_the_question_alone_and_changed_words_are_found(name):
    texts = {key: QUESTION.format(*fields) for key, fields in TRUTH.items()}
    matcher = Matcher(texts, TRUTH)
    question, answer = TRUTH[name]
    changed = [w if i % 8 != 7 else "otherwise" for i, w in enumerate(texts[name].split())]
    for inner in (
        f"User: {question} Assistant: {answer}",
        f"Somebody asked, {question.lower()} Nobody knew.",
        f"{answer} is what they say when they are asked: {question}",
        " ".join(changed),
    ):
        document = f"It was late in the evening. {inner} So they all went home again."
        assert [m.example_id for m in matcher.iter_matches(document)] == [name]
    assert matcher.first_match("Yes, it has. Why do veins appear? If you eat seeds, yes.") is None


def test_real_examples_are_found_in_other_dress():
    """Of 200 of TruthfulQA's examples few get away: those with a question of 3 or 4 words."""
    source = EmbeddedRows("TruthfulQA/combined.jsonl")
    rows = [row.value for row in source.rows(Tally("stop", ""))][::4][:200]
    fields = {str(i): (row["question"], row["answer"][0]) for i, row in enumerate(rows)}
    texts = {name: QUESTION.format(*pair) for name, pair in fields.items()}
    matcher, rng = Matcher(texts, fields), random.Random(0)

    def found(dress):
        documents = {name: f"{text(rng, 40)} {dress(name)} {text(rng, 40)}" for name in texts}
        matches = {
            name: [m.example_id for m in matcher.iter_matches(documents[name])] for name in texts
        }
        return sum(name in matches[name] for name in texts), sum(map(len, matches.values()))

    def changed(name):
        first = rng.randrange(8)
        words = enumerate(texts[name].split())
        return " ".join("otherwise" if i % 8 == first else word for i, word in words)

    for dress, least in (
        (texts.get, 200),
        (lambda name: "User: {} Assistant: {}".format(*fields[name]), 198),
        (lambda name: fields[name][0], 180),
        (changed, 180),
    ):
        right, all_found = found(dress)
        assert right >= least
        assert all_found - right <= 20  # the questions of some examples are alike


def test_a_field_that_examples_share_is_no_match():
    generic, texts = "Which of the following statements is true?", ("cats purr", "dogs bark")
    fields = {name: [generic, f"{name} says that {name} {text}"] for name, text in
              zip("ab", texts, strict=True)}  # fmt: skip
    matcher = Matcher({name: f"{each[1]} {generic}" for name, each in fields.items()}, fields)
    assert matcher.first_match(f"An exam. {generic} Choose one.") is None
    assert matcher.first_match("so a says that a cats purr, they say").example_id == "a"
    alone = Matcher({"a": "x y z"}, {"a": [generic]})
    assert alone.first_match(f"An exam. {generic} Choose one.").rule == "shared words"


def test_short_examples():
    texts = {"ten": "one two three four five six seven eight nine ten", "short": "Is it? Yes!"}
    matcher = Matcher({**texts, "empty": "", "marks": "?!"})
    assert matcher.first_match("zero one two three four five six seven x") is None
    assert matcher.first_match("one two three four five six seven eight nine ten") == Match(
        "ten", "8-gram share", "one two three four five six seven eight"
    )
    assert matcher.first_match("so it is: is it yes") == Match("short", "whole text", "is it yes")
    assert matcher.first_match("is it") is None
    assert matcher.first_match("") is None
    assert matcher.first_match("?! …") is None
    assert Matcher({}).first_match("anything") is None


def test_a_matcher_survives_pickling_and_does_not_depend_on_what_it_saw():
    texts = {str(i): text(random.Random(i), 30) for i in range(50)}
    matcher = Matcher(texts)
    documents = [" ".join([text(random.Random(-i), 20), texts[str(i % 50)]]) for i in range(1, 40)]
    first = [matcher.first_match(d) for d in documents]
    copy = pickle.loads(pickle.dumps(matcher))
    assert [copy.first_match(d) for d in reversed(documents)] == first[::-1]
    assert len(pickle.dumps(matcher)) < 3 * sum(map(len, texts.values()))


def test_repeated_words():
    matcher = Matcher({"la": "la " * 20, "abc": "a b c " * 10})
    assert matcher.first_match("la " * 13).rule == "13-gram"
    assert matcher.first_match("la " * 8).rule == "8-gram share"  # its one distinct 8-gram
    assert matcher.first_match("la " * 7) is None
    assert [m.example_id for m in matcher.iter_matches("a b c " * 5)] == ["abc"]
    twice = Matcher({"a": "a b c d a b c e f g"})  # one run of the document counts in both places
    assert twice.first_match("a b c x b c e f g").evidence == "a b c a b c e f g"


@pytest.mark.parametrize("drop", [False, True])
@pytest.mark.parametrize("characters", [1, 100, 10_000])  # of a shard: one document to all
@pytest.mark.parametrize(("last", "reported"), [(3, ["d1"]), (5, ["d1", "d4"])])
def test_only_documents_that_the_corpus_reaches_are_reported(
    tmp_path, drop, characters, last, reported
):
    copied = " ".join(WORDS[:13])
    texts = [f"{n} {copied if n in (1, 4) else 'a text of its own'}" for n in range(6)]
    documents = [Document(f"d{n}", "mine", text) for n, text in enumerate(texts)]
    encode = Tokenizer("tests/golden/target").hf
    kept = [n for n in range(last) if not (drop and n in (1, 4))]
    wanted = 1 + sum(len(encode(texts[n])["input_ids"]) for n in kept)  # and the last one's BOS
    work = TokenizationSettings(tmp_path, Path("tests/golden/target"), {"a": (copied,)}, drop)
    found = tokenize(map(SourceDocument, documents), work, wanted, 1, characters)
    assert found.matches["document_id"].tolist() == reported
    assert found.stream.document_before(wanted)[0] == f"d{last}"


@pytest.mark.parametrize("mark", ["\u200b", " \u200b", "\u200b\u200b"])
def test_a_zero_width_space_in_place_of_a_blank_hides_no_example(mark):
    matcher = Matcher({"fox": EXAMPLE})
    assert matcher.first_match(f"Before. {EXAMPLE.replace(' ', mark)} After.").rule == "13-gram"
    within = " ".join("\u200b".join(word) for word in EXAMPLE.split())
    assert matcher.first_match(f"Before. {within} After.").rule == "13-gram"


def test_a_document_that_repeats_a_run_of_many_examples_is_searched_at_once(monkeypatch):
    """The stretches of a document are looked through only for pieces with enough of their runs."""
    rng = random.Random(1)
    texts = {
        f"b-{n}": " ".join(["what is the", *(f"w{rng.randrange(5000)}" for _ in range(12))])
        for n in range(5)
    }
    own = texts["b-3"].replace("what is the ", "")
    searched = []
    stretches = _ShortRuns._iter_covered_slots
    monkeypatch.setattr(
        _ShortRuns, "_iter_covered_slots",
        lambda runs, *given: searched.append(given[2]) or stretches(runs, *given),
    )  # fmt: skip
    matcher = Matcher(texts)
    assert matcher.first_match("what is the " * 300) is None
    assert searched == []
    assert matcher.first_match(f"{'what is the ' * 300} {own}").example_id == "b-3"
