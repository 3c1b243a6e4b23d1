"""Conversion of Hydra's config into dataclasses, and what names a run folder."""

import re
from dataclasses import dataclass, field

import pytest
from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf
from omegaconf.errors import ConfigAttributeError, OmegaConfBaseException

from contamination.core.config import (
    _describe_omegaconf_error,
    convert_config,
    field_naming_unless_default,
    identity_data,
    instantiate_node,
    register_schema,
    runtime_field,
)
from contamination.core.errors import ConfigError, near_names, require
from contamination.core.seeds import derive_seed, unit_hash


@dataclass(frozen=True)
class Inner:
    rate: float = 0.5
    label: str = "a"


@dataclass(frozen=True)
class Outer:
    inner: Inner = field(default_factory=Inner)
    many: dict[str, Inner] = field(default_factory=dict)
    cells: list[Inner] = field(default_factory=list)
    seed: int = 0
    path: str | None = runtime_field(None)


@dataclass(frozen=True)
class WithColumns:
    inner: Inner = field(default_factory=Inner)
    columns: dict[str, str] = field(default_factory=dict)


def test_convert_types_every_level():
    config = OmegaConf.create(
        {"inner": {"rate": "1e-3"}, "many": {"x": {"rate": 2}}, "cells": [{"label": "b"}],
         "seed": 3, "unrelated": 1}
    )  # fmt: skip
    outer = convert_config(config, Outer)
    assert outer.inner == Inner(rate=1e-3)
    assert outer.many == {"x": Inner(rate=2.0)}
    assert outer.cells == [Inner(label="b")]
    assert (outer.seed, outer.path) == (3, None)


def test_a_schema_types_the_node_of_its_name():
    register_schema("a_test", Outer)
    stored = ConfigStore.instance().repo["schema"].pop("a_test.yaml")
    assert (stored.group, stored.name, stored.package) == ("schema", "a_test.yaml", "a_test")
    assert OmegaConf.get_type(stored.node, "inner") is Inner


def test_a_field_that_holds_texts_takes_any_key_and_no_other_field_does():
    register_schema("a_test", WithColumns)
    node = ConfigStore.instance().repo["schema"].pop("a_test.yaml").node
    OmegaConf.set_struct(node, True)
    node.columns.question = "Question"
    assert node.columns == {"question": "Question"}
    with pytest.raises(ConfigAttributeError, match="rates"):
        node.inner.rates = 1.0


NOT_A_NUMBER = "Value 'x' of type 'str' could not be converted to"


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"inner": {"rte": 1}}, "inner.rte: unknown field. Did you mean rate?"),
        ({"many": {"a": {"rte": 1}}}, "many.a.rte: unknown field."),
        ({"cells": [{}, {"rte": 1}]}, "cells.1.rte: unknown field."),
        ({"inner": {"rate": "x"}}, f"inner.rate: {NOT_A_NUMBER} Float. See the options with --cfg"),
        ({"many": {"a": {"rate": "x"}}}, f"many.a.rate: {NOT_A_NUMBER} Float."),
        ({"cells": [{"rate": "x"}]}, f"cells.0.rate: {NOT_A_NUMBER} Float."),
        ({"seed": "x"}, f"seed: {NOT_A_NUMBER} Integer. See the options with --cfg job."),
        ({"inner": 3}, "inner is 3: give inner={name: {…}}. See the options"),
        ({"many": [1]}, "many is [1]: give many={name: {…}}."),
        ({"many": {"a": 1}}, "many.a is 1: give"),
        ({"cells": {"a": 1}}, "cells is {'a': 1}: give cells=[{…}]."),
        ({"cells": [1]}, "cells.0 is 1: give"),
    ],
)
def test_a_wrong_key_or_type_is_named(config, words):
    with pytest.raises(ConfigError, match=f"^{re.escape(words)}"):
        convert_config(OmegaConf.create(config), Outer)


def test_an_error_is_one_line_with_the_whole_field():
    error = OmegaConfBaseException("bare\nmore")
    assert _describe_omegaconf_error(error, "a.") == "bare. See the options with --cfg job."
    error.full_key = "a.b"
    assert _describe_omegaconf_error(error, "a.") == "a.b: bare. See the options with --cfg job."
    error.full_key = "b"
    assert _describe_omegaconf_error(error, "a.") == "a.b: bare. See the options with --cfg job."


def test_a_node_may_name_another_and_hold_frozen_ones():
    @dataclass(frozen=True)
    class Deep:
        inner: Inner = field(default_factory=Inner)
        other: Inner | None = None

    @dataclass(frozen=True)
    class Whole:
        deep: Deep = field(default_factory=Deep)
        seed: int = 0
        label: str = ""
        plain: dict[str, str] = field(default_factory=dict)

    node = {"inner": {"label": "${seed}"}, "other": {"rate": 2}}
    rest = {"label": "${deep.inner.label}", "plain": {"a": "${label}"}}
    given = OmegaConf.create({"deep": node, "seed": 3, **rest})
    deep = Deep(inner=Inner(label="3"), other=Inner(rate=2.0))
    assert convert_config(given, Whole) == Whole(deep, 3, "3", {"a": "3"})


@dataclass(frozen=True)
class Younger:
    rate: float = 0.5
    scope: str = field_naming_unless_default("whole")
    steps: list[int] = field_naming_unless_default([])


def test_a_younger_field_is_part_of_the_name_where_it_is_set():
    assert identity_data(Younger()) == identity_data(Younger(steps=[])) == {"rate": 0.5}
    assert identity_data(Younger(scope="output")) == {"rate": 0.5, "scope": "output"}
    assert identity_data(Younger(steps=[3])) == {"rate": 0.5, "steps": [3]}


def test_identity_leaves_out_how_it_runs():
    made = Outer(many={"a": Inner(2.0)}, cells=[Inner(label="b")], seed=1, path="x")
    assert identity_data(made) == {
        "inner": {"rate": 0.5, "label": "a"},
        "many": {"a": {"rate": 2.0, "label": "a"}},
        "cells": [{"rate": 0.5, "label": "b"}],
        "seed": 1,
    }
    how = runtime_field(3)
    assert (how.default, dict(how.metadata)) == (3, {"identity": False, "range": None})


def test_create_makes_the_target_and_words_its_errors():
    target = {"_target_": "contamination.injection.occurrences.Fixed"}
    assert instantiate_node("occurrences", {**target, "count": 2}).count == 2
    made = instantiate_node("a", {"_target_": "types.SimpleNamespace", "cells": [{"b": [1]}]})
    assert (type(made.cells), type(made.cells[0]), type(made.cells[0]["b"])) == (list, dict, list)
    wrong = "x.occurrences can't be made from contamination.injection.occurrences."
    for node, said in [
        ({**target, "count": -1}, "x.occurrences: occurrences.count is -1: give"),
        ({**target, "count": "1"}, f"{wrong}Fixed with {{'count': '1'}}: '<=' not supported"),
        ({**target, "cuont": 1}, f"{wrong}Fixed with {{'cuont': 1}}: Fixed.__init__() got an "
         "unexpected keyword argument 'cuont'. See conf/occurrences/."),
        ({"_target_": "contamination.injection.occurrences.Fxied"}, f"{wrong}Fxied with {{}}: "
         "Error loading 'contamination.injection.occurrences.Fxied'. See conf/occurrences/."),
        ({}, "x.occurrences has no _target_: choose one of the files in conf/."),
    ]:  # fmt: skip
        with pytest.raises(ConfigError, match="^" + re.escape(said)):
            instantiate_node("x.occurrences", node)


def test_near_names_and_require():
    assert near_names("bolq", ["boolq", "imdb"]) == "Did you mean boolq? Known: boolq, imdb."
    require(True, "a", 1, "never said")
    with pytest.raises(ConfigError, match="a is 1: give 2"):
        require(False, "a", 1, "give 2")


def test_seeds_are_independent_by_name_and_stable():
    assert derive_seed(0, "membership") != derive_seed(0, "position") != derive_seed(1, "position")
    assert derive_seed(0, "membership") == 7108097736803440182
    assert 0 <= unit_hash("x") < 1
