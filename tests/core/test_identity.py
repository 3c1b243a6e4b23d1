"""Which fields and values are part of a run folder's name."""

import json
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

import numpy as np
import pytest

from contamination.core.artifacts import WrittenFiles, build_or_open, run_folder
from contamination.core.config import identity_data
from contamination.core.errors import ConfigError
from contamination.core.integrity import read_manifest


@dataclass(frozen=True)
class Holder:
    value: object
    inner: dict = field(default_factory=dict)


@pytest.mark.parametrize(
    "value",
    [{1}, frozenset("a"), object(), print, Holder, Path("a"), b"a", float("nan"), np.float32(0.5),
     np.int64(1), np.array([1.0]), np.datetime64("2026-01-01"), Enum("Kind", "a").a, 1j],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_what_has_no_stable_text_names_no_folder(tmp_path, value):
    for config, name in [
        (Holder(value), "value"),
        (Holder(1, {"a": [0, {"b": value}]}), "inner.a.1.b"),
        ({"many": {"x": Holder(value)}}, "many.x.value"),
        (Holder(1, {"a": {None: value}}), "inner.a.None"),
    ]:
        with pytest.raises(ConfigError) as error:
            run_folder(tmp_path, "corpus", "a", config, {})
        assert str(error.value).startswith(f"{name} contains {value!r} ({type(value).__name__})")


def test_a_key_without_stable_text_names_no_folder_either():
    with pytest.raises(ConfigError, match=r"inner contains \('a',\) \(tuple\)"):
        identity_data(Holder(1, {("a",): 1}))


def test_plain_values_and_their_subclasses_keep_their_text():
    given = Holder((1, True, None, "a", float("inf"), np.float64(0.1)), {1: -0.0, None: []})
    assert json.dumps(identity_data(given)) == (
        '{"value": [1, true, null, "a", Infinity, 0.1], "inner": {"1": -0.0, "None": []}}'
    )


def test_the_manifest_holds_the_settings_that_name_the_folder(tmp_path):
    settings, stage = {"k": 0.2}, Holder(3)
    for named, config in [(None, stage), (settings, settings)]:
        folder = run_folder(tmp_path, "scores", "a", config, {"x": "p"})
        build_or_open(folder, stage, {"x": "p"}, lambda _: WrittenFiles([]), named)
        found = read_manifest(folder)["identity"]
        assert found == identity_data(config)
        assert run_folder(tmp_path, "scores", "a", found, {"x": "p"}) == folder
