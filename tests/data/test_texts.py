"""Texts in columns are the same texts as objects, in any order and part."""

import random
from itertools import groupby
from operator import attrgetter

import numpy as np
import pytest

from contamination.data.examples import make_text
from contamination.data.texts import COLUMNS, Texts
from contamination.detection.config import DetectionConfig
from contamination.detection.pass_collector import Collector

WORDS = ("a", "b", "Ä", "\U0001f600", "\uffee", "", "a\x00b")
rng = random.Random(0)
OBJECTS = [
    make_text(f"{rng.choice(WORDS)}{i}", rng.choice(WORDS) * 3, rng.choice([True, False, None]),
              rng.choice(["", "one", "two"]))
    for i in range(200)
]  # fmt: skip


@pytest.fixture(params=[7, 4096])
def texts(request, monkeypatch):
    monkeypatch.setattr("contamination.data.texts.BLOCK_TEXTS", request.param)
    return Texts.of(iter(OBJECTS))


def test_they_are_the_texts(texts):
    assert len(texts) == 200
    assert list(texts) == OBJECTS
    assert texts[-1] == OBJECTS[-1]
    assert list(texts[50:60]) == OBJECTS[50:60]
    assert list(texts[50:60][2:4]) == OBJECTS[52:54]
    even = np.arange(200) % 2 == 0
    assert list(texts.take(even)) == OBJECTS[::2]
    assert texts.take(even).column("label").to_pylist() == [t.label for t in OBJECTS[::2]]
    assert Texts.of(texts) is texts
    assert not Texts.of([])
    for name in COLUMNS.names:
        column = texts.column(name)
        assert column.type == COLUMNS.field(name).type
        assert column.to_pylist() == [getattr(text, name) for text in OBJECTS]
    with pytest.raises(IndexError):
        texts[200]


@pytest.mark.parametrize("names", [("example_id",), ("sha256", "example_id"), ("benchmark",)])
def test_they_sort_as_objects_do(texts, names):
    assert list(texts.take(texts.sorting_indices(*names))) == sorted(
        OBJECTS, key=attrgetter(*names)
    )


def test_a_pass_is_over_each_text_once(tmp_path):
    found = Collector(tmp_path, {}, OBJECTS, DetectionConfig()).texts
    ordered = sorted(OBJECTS, key=attrgetter("sha256", "benchmark"))
    assert list(found) == [last for _, (*_, last) in groupby(ordered, attrgetter("sha256"))]
    assert len(found) == len(set(WORDS))
