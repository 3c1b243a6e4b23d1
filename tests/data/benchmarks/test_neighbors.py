"""Reworded versions of a benchmark's texts."""

import hashlib

import pytest
from hydra import compose, initialize_config_dir

from contamination.core.config import CONF, convert_config
from contamination.core.errors import ConfigError, DataError
from contamination.detection.config import DetectionStage
from contamination.detection.run import run
from contamination.detection.scores import open_scores
from contamination.detection.supplied_neighbors import Neighbors
from tests.data.benchmarks import layouts
from tests.data.benchmarks.layouts import SEEN


def stage(benchmark, path, *overrides):
    words = [f"examples={benchmark}", f"examples.path='{path}'", "model.path=x", *overrides]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return convert_config(compose("detection", words), DetectionStage)


def hashed(text):
    return hashlib.sha256(text.encode()).hexdigest()


def test_mimirs_are_a_list_a_text(tmp_path):
    found = Neighbors(stage("mimir", layouts.mimir(tmp_path), "examples.domain=arxiv").examples)
    line = f"{SEEN}, says arxiv's ngram_13_0.8 line 1."
    assert [*found.by_text_sha256[hashed(line)]] == [f"{line} Neighbour {k}." for k in range(25)]


def test_mimirs_converted_files_have_them_beside_the_texts(tmp_path):
    files = {"arxiv/ngram_13_0.8/0000": layouts.mimir_rows("arxiv", n=3)}
    folder = layouts.converted(tmp_path, files)
    found = Neighbors(stage("mimir", folder, "examples.domain=arxiv").examples)
    line = f"{SEEN}, says arxiv line 1."
    assert [*found.by_text_sha256[hashed(line)]] == [f"{line} N{k}" for k in range(3)]
    assert len(found.by_text_sha256) == 4


def test_wikimias_are_rows_that_follow_each_other(tmp_path):
    own = stage(
        "wikimia", layouts.wikimia(tmp_path), "examples.length=64", "examples.setting=original"
    )
    found = Neighbors(own.examples).by_text_sha256
    assert [*found[hashed(f"{SEEN} and 64 more.")]] == [f"{SEEN} and 64 more. {n}" for n in "ab"]
    longest = stage("wikimia", tmp_path, "examples.length=256").examples
    with pytest.raises(DataError, match="the neighbours of length 256.*no file WikiMIA_length256_"):
        _ = Neighbors(longest).by_text_sha256


def test_the_method_neighbor_takes_them(tmp_path, toy_folders):
    folder = layouts.mimir(tmp_path / "mimir", n=2)
    given = [
        "method=[neighbor,loss]",
        "method.neighbor.augmentation=given",
        "examples.domain=arxiv",
    ]
    words = [*given, f"runs={tmp_path}", f"model.path={toy_folders['target']}"]
    table = open_scores(run(stage("mimir", folder, *words, "method.neighbor.n=2")).path).table
    assert len(table) == 2 * 4
    with pytest.raises(DataError, match=r"has 2 neighbours in the files of mimir, and n is 25"):
        run(stage("mimir", folder, *words))
    with pytest.raises(ConfigError, match=r"method\.neighbor needs a benchmark with neighbours"):
        run(stage("bookmia", layouts.bookmia(tmp_path / "book"), *words[:2], *words[3:]))
