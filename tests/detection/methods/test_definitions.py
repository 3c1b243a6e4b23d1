"""Every method beside the loop of its definition, over numbers that float32 holds exactly.

All are eighths and all σ are powers of two, so that only what a loop does otherwise differs.
"""

from functools import partial

import numpy as np
import pytest
import yaml

from contamination.core.errors import ConfigError
from contamination.detection.config import METHODS_FOLDER
from contamination.detection.methods.base import Method
from contamination.detection.methods.registry import build_methods
from contamination.detection.passes import ORIGINAL, Example, Pass, TokenStats, UndeclaredPassError
from tests.detection import naive

NODES = {
    path.stem: yaml.safe_load(path.read_text())[path.stem] for path in METHODS_FOLDER.glob("*.yaml")
}
K = [{}, {"k": 0.1}, {"k": 0.29}, {"k": 1.0}]
AUGMENTED = [
    {}, {"augmentation": "delete", "n": 3, "share": 0.5}, {"augmentation": "lowercase"},
    {"augmentation": "swap", "n": 1, "share": 1.0}, {"augmentation": "masked_lm", "share": 0.125},
    {"augmentation": "given", "n": 3},
]  # fmt: skip
PARTS = [{}, {"top": 0.5}, {"bottom": 0.125}, {"top": 1.0, "bottom": 1.0}]
CASES = {
    "con_recall": [{}, {"shots": 1}, {"gamma": 0.0}, {"gamma": 1.0}],
    "dc_pdd": [{}, {"limit": 0.25}, {"limit": 100.0}],
    "ez_mia": [{}], "info_rmia": [{}], "wbc": [{}],
    "gap_k": [*K, {"window": 1}, {"window": 2}, {"window": 40, "k": 0.5}],
    "infilling": [*K, *({"m": m, "k": 0.5} for m in (0, 1, 2, 5, "all"))],
    "loss": [{}], "lowercase": [{}],
    "lt_mia": [{}, {"allow_trained": True}], "reference": [{}], "zlib": [{}],
    "max_k": K, "mean_only": K, "min_k": K, "min_k_plus_plus": K, "std_only": K,
    "neighbor": AUGMENTED,
    "pac": AUGMENTED + PARTS,
    "polarized_distance": PARTS,
    "recall": [{}, {"shots": 1}],
    "surp": [*K, {"entropy": 1.0}, {"entropy": 2.5, "k": 1.0}, {"entropy": 0.125}],
}  # fmt: skip
LENGTHS = (1, 2, 5, 7, 32, 33, 100)
TEXTS = {**{str(n): n for n in LENGTHS}, "certain": 6, "far": 21}
FRACTION = "give a fraction above 0 and at most 1."
VIEWS = "choose from swap, delete, lowercase, masked_lm, given."
VERSIONS, SHARE = "give 1 or more.", "give a fraction above 0"
FUTURE = "give a number of tokens, 0 or more, or auto, or all."


def drawn(rng, n, kind):
    """A copy of n scored tokens: many ties, and some entropies of exactly 1 and 2."""
    top = -rng.integers(0, 12, n) / 8
    columns = {
        "logprob": top - rng.integers(0, 80, n) / 8, "mean": -rng.integers(1, 24, n) / 8,
        "std": 2.0 ** rng.integers(-2, 3, n), "top_logprob": top,
    }  # fmt: skip
    if kind == "certain":
        columns |= {"logprob": np.zeros(n), "top_logprob": np.zeros(n), "std": np.full(n, 2**-20)}
    if kind == "far":
        columns["logprob"] *= 2**10
    return TokenStats(*(c.astype(np.float32) for c in columns.values()), np.zeros(n, np.int32))


def copies(rng, wanted, n, kind):
    """As a pass gives them: after a replacement there is a token less for each that follows."""
    given = dict(wanted.parameters)
    if wanted.view == "infill":
        future = n if given["future"] == "all" else given["future"] + 3  # serves others as well
        last = min(future, n - 1)
        return tuple(drawn(rng, n - j, kind) for j in range(last + 1))
    if wanted in (ORIGINAL, Pass(view="prefix", **given)):
        return (drawn(rng, n, kind),)
    if wanted.view == "unigram":
        frequencies = drawn(rng, n, "" if kind == "certain" else kind)
        frequencies.logprob[0] = -1  # the first token that is scored has not been there before
        return (frequencies,)
    return tuple(drawn(rng, n + i, kind) for i in range(given.get("n", 1)))


def only(numbers, stats):
    return TokenStats(**{name: vars(stats)[name] for name in numbers})


def rows(stats):
    names = ("logprob", "mean", "std", "top_logprob")
    return [{name: float(getattr(stats, name)[i]) for name in names} for i in range(len(stats))]


def test_every_loop_is_a_methods_and_has_its_cases():
    assert set(CASES) == set(naive.LOOPS) <= set(NODES)


@pytest.mark.parametrize(("name", "given"), [(n, given) for n in CASES for given in CASES[n]])
def test_every_text_scores_as_the_loop_says(name, given):
    node = {**NODES[name], **given}
    ((_, variant), method), *more = build_methods({name: node}).items()
    parameters = {key: value for key, value in node.items() if key != "_target_"}
    assert not more
    assert variant == ",".join(f"{key}={value}" for key, value in parameters.items())
    assert method.is_default is (not given)
    for place, (text, n) in enumerate(TEXTS.items()):
        rng = np.random.default_rng([place, len(given)])
        passes = {wanted: copies(rng, wanted, n, text) for wanted in method.passes}
        declared = {p: tuple(map(partial(only, method.numbers), passes[p])) for p in passes}
        example = Example(text, f"Ünder the {text} " * n, declared)
        views = {p.key: [rows(copy) for copy in passes[p]] for p in passes}
        expected = naive.LOOPS[name](views, example.text, **parameters)
        assert method.score(example) == pytest.approx(expected, rel=1e-12, abs=1e-12)
        assert method.flag(example) == expected_flag(name, views, parameters)
        with pytest.raises(UndeclaredPassError, match="; declared: none"):
            method.score(Example(text, text, {}))


def expected_flag(name, views, parameters):
    if name == "surp" and not naive.surprising(views, **parameters):
        return "no surprising token, scored as min_k"
    if name == "wbc" and len(naive.original(views)) == 1:
        return "a single token, as one window"
    if name == "ez_mia" and len(errors := naive.error_gains(views)) < 2:
        return "a single error" if errors else "no error, ranked above all others"
    return ""


WRONG = [
    *((name, "k", k, FRACTION) for name in CASES if "k" in NODES[name] for k in (0, 1.25)),
    *((name, part, value, FRACTION) for name in ("pac", "polarized_distance")
      for part in ("top", "bottom") for value in (0.0, 1.25)),
    *((name, *wrong) for name in ("pac", "neighbor") for wrong in (
        ("augmentation", "synonym", VIEWS), ("n", 0, VERSIONS),
        ("share", 0.0, f"{SHARE} and at most 1."), ("share", 1.25, f"{SHARE} and at most 1."))),
    ("gap_k", "window", 0, "give 1 or more."),
    *(("infilling", "m", m, FUTURE) for m in (-1, "some", True)),
    ("recall", "shots", 0, "give 1 or more."),
    ("con_recall", "shots", 0, "give 1 or more."),
    *(("con_recall", "gamma", g, "give a number from 0 to 1.") for g in (-0.1, 1.1)),
    ("dc_pdd", "limit", 0.0, "give a number above 0."),
    ("dc_pdd", "characters", 0, "give 1 or more."),
    *(("surp", "entropy", value, "give a number above 0.") for value in (0.0, float("inf"))),
]  # fmt: skip


@pytest.mark.parametrize(("name", "field", "value", "remedy"), WRONG)
def test_a_value_out_of_range_is_refused_with_its_remedy(name, field, value, remedy):
    kind = type(next(iter(build_methods({name: NODES[name]}).values())))
    assert issubclass(kind, Method)
    with pytest.raises(ConfigError) as error:
        kind(**{field: value})
    assert str(error.value) == f"{field} is {value!r}: {remedy}"
