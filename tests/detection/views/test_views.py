"""Methods that read views of a text, against float64 loops over the views' own texts."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import yaml
from transformers import (
    AutoModelForCausalLM,
    JambaConfig,
    MambaConfig,
    MistralConfig,
    MistralForCausalLM,
)

from contamination.core.errors import ConfigError, DataError
from contamination.core.models import load_model
from contamination.data.config import ExamplesConfig
from contamination.detection.config import (
    METHODS_FOLDER,
    DetectionConfig,
    DetectionStage,
    NeighborModelConfig,
    PrefixConfig,
    ReferenceConfig,
    ScoredModelConfig,
)
from contamination.detection.forward.batches import run_sequences
from contamination.detection.forward.prefix import (
    CachedPrefixModel,
    PrependedPrefixModel,
    Shots,
    model_after_prefix,
    run_after_shots,
)
from contamination.detection.forward.reader import Tokens
from contamination.detection.methods.lowercase import Lowercase
from contamination.detection.methods.neighbor import Neighbor
from contamination.detection.methods.pac import Pac
from contamination.detection.methods.recall import Recall
from contamination.detection.methods.reference import Reference
from contamination.detection.methods.surp import Surp
from contamination.detection.models.causal_lm import CausalLM
from contamination.detection.models.hf_model import HFModel
from contamination.detection.pass_collector import Collector
from contamination.detection.passes import ORIGINAL, Example, Pass, TokenStats
from contamination.detection.run import run
from contamination.detection.scores import open_scores
from contamination.detection.supplied_neighbors import Neighbors
from contamination.detection.view_resources import Resources, check_shots_disjoint, open_prefix
from contamination.detection.views import VIEWS, render_versions, view_of
from contamination.detection.views.generated import shorten_prompt
from tests.detection import golden, naive
from tests.detection.conftest import MEMORISED, UNSEEN
from tests.detection.masked import save_masked_model
from tests.rounding import FORWARD
from tests.scoring import score_text

TEXTS = [golden.text_of(str(i), t) for i, t in enumerate([MEMORISED, UNSEEN, "Short words here."])]
SHOT = "A cat sits by the old road."


@pytest.fixture(scope="module")
def doubles(toy_folders):
    return {r: load_model("path", str(f)).double() for r, f in toy_folders.items()}


@pytest.fixture(scope="module")
def rows(doubles, tokenizer):
    """Float64 rows of a text by one of the toy models."""
    return lambda text, role="target": naive.token_rows(doubles[role], tokenizer(text)["input_ids"])


def loss(rows):
    return naive.mean(naive.logprobs(rows))


# --- against plain loops -----------------------------------------------------------------------


@pytest.mark.parametrize("text", TEXTS, ids=lambda t: t.example_id)
def test_reference_and_lowercase_equal_a_loop(collect, rows, text):
    passes = collect([Reference(), Lowercase()], TEXTS)
    difference = loss(rows(text.text)) - loss(rows(text.text, "reference"))
    assert score_text(Reference(), text, passes) == pytest.approx(difference, rel=1e-4, abs=FORWARD)
    ratio = loss(rows(text.text.lower())) / loss(rows(text.text))
    assert score_text(Lowercase(), text, passes) == pytest.approx(ratio, rel=1e-4)


@pytest.mark.parametrize("augmentation", ["swap", "delete", "lowercase", "masked_lm"])
def test_pac_and_neighbor_equal_a_loop_over_the_views_texts(collect, rows, resources, augmentation):
    pac = Pac(augmentation=augmentation, n=3)
    neighbor = Neighbor(augmentation=augmentation, n=3)
    passes = collect([pac, neighbor], TEXTS)
    for text, versions in zip(
        TEXTS, render_versions(pac.versions_pass, TEXTS, resources), strict=True
    ):
        assert len(versions) == (1 if augmentation == "lowercase" else 3)
        around = [rows(v) for v in versions]
        own, *spreads = (naive.distance(r, 0.05, 0.3) for r in (rows(text.text), *around))
        expected = naive.mean(spreads) - own
        assert score_text(pac, text, passes) == pytest.approx(expected, rel=1e-4, abs=FORWARD)
        expected = loss(rows(text.text)) - sum(map(loss, around)) / len(around)
        found = score_text(neighbor, text, passes)
        assert found == pytest.approx(expected, rel=1e-4, abs=FORWARD)


@pytest.mark.parametrize("shots", [1, 2])
def test_recall_equals_a_loop_over_the_prefix_and_the_text(
    collect, doubles, tokenizer, resources, shots
):
    method = Recall(shots=shots)
    passes = collect([method], TEXTS)
    prefix = "".join(f"{s}\n" for s in resources.prefix.texts[:shots])
    before = tokenizer(prefix)["input_ids"]
    for text in TEXTS:
        ids = tokenizer(text.text)["input_ids"]
        rows_after = naive.token_rows(doubles["target"], before + ids[1:])[len(before) - 1 :]
        assert len(rows_after) == len(ids) - 1
        expected = loss(rows_after) / loss(naive.token_rows(doubles["target"], ids))
        assert score_text(method, text, passes) == pytest.approx(expected, rel=1e-4)


def test_a_tokenizer_without_special_tokens_scores_the_same_tokens(doubles, tokenizer, toy_folders):
    def bare(texts, **_):
        return tokenizer(texts, add_special_tokens=False)

    shots = Shots(bare, [SHOT])
    ids = bare(UNSEEN)["input_ids"]
    decoder = CausalLM(load_model("path", str(toy_folders["target"])))
    (stats,) = run_after_shots(decoder, shots, [ids], ["x"], 64, 128)
    rows_after = naive.token_rows(doubles["target"], shots.ids[1] + ids)[len(shots.ids[1]) :]
    assert shots.special == []
    assert stats.logprob.tolist() == pytest.approx(
        [r["logprob"] for r in rows_after], rel=1e-4, abs=FORWARD
    )


def test_surp_finds_the_files_surprising_tokens(tmp_path):
    source = {"target": HFModel.from_path("model.path", str(golden.GOLDEN / "target"))}
    copies = Collector(tmp_path, source, golden.texts(), DetectionConfig()).collect([ORIGINAL])
    for text, expected in zip(golden.texts(), golden.examples(), strict=True):
        seen = Example("x", text.text, {ORIGINAL: copies[ORIGINAL][text.sha256]})
        assert len(Surp()._surprising_and_lowest(seen)[0]) == expected["surp_tokens"]
        assert bool(Surp().flag(seen)) == (not expected["surp_tokens"])


def test_a_text_that_the_model_is_certain_of_has_a_finite_ratio(collect):
    stats = collect([Lowercase()], TEXTS[:1])
    certain = {p: tuple(TokenStats(logprob=0 * s.logprob) for s in c[TEXTS[0].sha256])
               for p, c in stats.items()}  # fmt: skip
    assert Lowercase().score(Example("x", MEMORISED, certain)) == 1


# --- what a view draws -------------------------------------------------------------------------


@pytest.mark.parametrize("view", ["swap", "delete", "masked_lm"])
def test_versions_follow_from_the_seed_and_the_text_alone(resources, view):
    wanted = Pass(view=view, n=4, share=0.3)
    versions = render_versions(wanted, TEXTS, resources)
    assert render_versions(wanted, TEXTS[::-1], resources)[::-1] == versions
    assert [render_versions(wanted, [t], resources)[0] for t in TEXTS] == versions
    renamed = [replace(t, example_id=f"other {t.example_id}") for t in TEXTS]
    assert render_versions(wanted, renamed, resources) == versions
    assert render_versions(wanted, TEXTS, replace(resources, seed=1)) != versions
    more = render_versions(Pass(view=view, n=6, share=0.3), TEXTS, resources)
    assert [row[:4] for row in more] == versions
    assert all(len(set(row)) > 3 for row in more[:2])  # each version is drawn by itself


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_a_view_changes_its_share_of_the_words(resources, share):
    """⌊share·n⌋ of the n words, at least one: gone, other words, or in pairs of changed places."""
    for view in ("delete", "masked_lm", "swap"):
        for text, versions in zip(
            TEXTS, render_versions(Pass(view=view, n=4, share=share), TEXTS, resources), strict=True
        ):
            words = text.text.split()
            asked = max(1, int(share * len(words)))
            for version in (v.split() for v in versions):
                if view == "delete":
                    assert len(version) == len(words) - asked
                    continue
                changed = sum(a != b for a, b in zip(words, version, strict=True))
                assert 0 < changed <= asked * (1 + (view == "swap"))
                assert sorted(version) == sorted(words) or view == "masked_lm"
            if view != "delete":  # the same place may be drawn twice, or get its own word back
                most = max(sum(a != b for a, b in zip(words, v.split(), strict=True))
                           for v in versions)  # fmt: skip
                assert most > asked / 2


def stored(tmp_path):
    return len(list((tmp_path / "passes").iterdir()))


class Given(Neighbors):
    """Neighbours at hand; here `examples` is what they begin with."""

    def of(self, text, n):
        return [f"{self.examples} {text.text}"] * n

    def identity(self, texts):
        return self.examples


def test_a_view_is_stored_under_all_that_it_draws_on(toy_models, resources, tmp_path, prefix_file):
    def collect(wanted, resources):
        Collector(tmp_path, toy_models, TEXTS, DetectionConfig(), resources).collect([wanted])
        return stored(tmp_path)

    other_model = HFModel.from_path("masked_lm.path", str(save_masked_model(tmp_path / "other")))
    more = [{"text": "A text."}, {"text": "One more.", "member": True}]
    (tmp_path / "more.jsonl").write_text("".join(json.dumps(row) + "\n" for row in more))
    resources = replace(resources, neighbors=Given("own"))
    others = {
        "seed": replace(resources, seed=1),
        "masked_lm": replace(resources, masked_lm=replace(other_model, digest="another")),
        "prefix": replace(resources, prefix=open_prefix(str(tmp_path / "more.jsonl"))),
        "neighbors": replace(resources, neighbors=Given("other")),
    }
    expected = 0
    options = {"swap": {"n": 1, "share": 0.3}, "prefix": {"shots": 1}, "infill": {"future": 1}}
    options["given"], options["member_prefix"] = {"n": 1}, {"shots": 1}
    options["unigram"] = {"corpus": str(prefix_file), "characters": 9}
    options["delete"] = options["masked_lm"] = options["swap"]
    options["greedy"] = {"share": 0.5, "tokens": 2}
    options["sampled"] = {**options["greedy"], "n": 1, "temperature": 1.0}
    for name in sorted(VIEWS, key=lambda name: name != "original"):  # which others read
        view, wanted = VIEWS[name], Pass(view=name, **options.get(name, {}))
        expected += 1
        assert collect(wanted, resources) == expected
        for what, other in others.items():
            expected += what in view.needs
            assert collect(wanted, other) == expected


def test_a_version_that_outgrows_the_context_is_cut(toy_models, tmp_path, tokenizer):
    text = "İ" * 60  # lower case adds a character to each
    assert len(tokenizer(text)["input_ids"]) <= 128 < len(tokenizer(text.lower())["input_ids"])
    row = golden.text_of("x", text)
    collector = Collector(tmp_path, toy_models, [row], DetectionConfig())
    (found,) = collector.collect([Pass(view="lowercase")]).values()
    assert len(found[row.sha256][0]) == 127  # the context of 128 but the first


def test_a_view_without_what_it_needs_is_named():
    with pytest.raises(ConfigError, match="masked_lm.path is null"):
        render_versions(Pass(view="masked_lm", n=1, share=0.3), TEXTS, Resources())


# --- prefixes ----------------------------------------------------------------------------------


def test_fewer_shots_where_they_leave_no_room_whatever_the_other_texts(decoder, tokenizer, caplog):
    shots = Shots(tokenizer, [SHOT, "Two dogs run.", "The third one."])
    assert shots.ids[2] == tokenizer(f"{SHOT}\nTwo dogs run.\n")["input_ids"]
    ids = tokenizer(UNSEEN)["input_ids"]
    long = tokenizer(UNSEEN + MEMORISED)["input_ids"]
    context = len(shots.ids[2]) + len(ids) - 1
    assert shots.count_fitting(len(ids), context) == 2
    assert shots.count_fitting(len(ids), context - 1) == 1
    assert shots.count_fitting(context, context) == 0
    together = run_after_shots(decoder, shots, [ids, long], ["a", "b"], 8192, context)
    for sequence, stats in zip([ids, long], together, strict=True):
        (alone,) = run_after_shots(decoder, shots, [sequence], ["x"], 8192, context)
        assert stats.logprob == pytest.approx(alone.logprob, rel=1e-5, abs=FORWARD)
    assert "1 of 2 texts have room in the model's context for 2 of 3 shots" in caplog.text


def test_a_model_without_a_cache_reads_the_prefix_with_each_text(decoder, tokenizer):
    shots = Shots(tokenizer, [SHOT])
    sequences = [tokenizer(t.text)["input_ids"] for t in TEXTS]
    cached = CachedPrefixModel(decoder, shots.ids[1], 1)
    whole = PrependedPrefixModel(decoder, shots.ids[1], 1)
    assert isinstance(model_after_prefix(decoder, shots.ids[1], 1), CachedPrefixModel)
    names = ["x"] * len(sequences)
    pairs = (run_sequences(d, sequences, names, 8192) for d in (cached, whole))
    for one, other in zip(*pairs, strict=True):
        assert one.logprob == pytest.approx(other.logprob, rel=1e-4, abs=FORWARD)


def check_after_prefix(model, shots, tokenizer):
    """Fails unless each text's log-probabilities after the shots are those of a float64 loop."""
    sequences = [tokenizer(t.text)["input_ids"] for t in TEXTS]
    found = run_after_shots(CausalLM(model), shots, sequences, ["x"] * len(sequences), 8192, None)
    start = len(shots.ids[1]) - 1
    for ids, stats in zip(sequences, found, strict=True):
        rows = naive.token_rows(model.double(), shots.ids[1] + ids[1:])[start:]
        wanted = [row["logprob"] for row in rows]
        assert stats.logprob.tolist() == pytest.approx(wanted, rel=1e-4, abs=FORWARD)


@pytest.mark.parametrize(
    "config",
    [
        MambaConfig(vocab_size=1024, hidden_size=32, num_hidden_layers=2, state_size=4),
        JambaConfig(
            vocab_size=1024, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, attn_layer_period=2, attn_layer_offset=1,
            num_experts=1, num_experts_per_tok=1, mamba_d_state=4, use_mamba_kernels=False,
        ),
    ],
    ids=["states alone", "states and keys"],
)  # fmt: skip
def test_a_recurrent_model_reads_the_prefix_with_each_text(tokenizer, config):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).eval()
    shots = Shots(tokenizer, [SHOT])
    assert isinstance(model_after_prefix(CausalLM(model), shots.ids[1], 1), PrependedPrefixModel)
    check_after_prefix(model, shots, tokenizer)


def test_a_sliding_window_reaches_back_into_the_prefix(tokenizer):
    torch.manual_seed(0)
    config = MistralConfig(
        vocab_size=1024, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, sliding_window=8,
    )  # fmt: skip
    model = MistralForCausalLM(config).eval()
    shots = Shots(tokenizer, [SHOT])
    check_after_prefix(model, shots, tokenizer)


def test_a_prefix_with_an_evaluated_text_is_an_error():
    evaluated = [("e1", "a  CAT sits by\nthe old road."), ("e2", "cat")]
    with pytest.raises(DataError, match="number 2 contains the text e1"):
        check_shots_disjoint(["Another one.", f"So: {SHOT}"], evaluated)
    check_shots_disjoint(["Another one."], evaluated)
    check_shots_disjoint([SHOT], evaluated[1:])  # a word or two may stand anywhere


def test_a_stored_file_of_non_members_may_be_jsonl(tmp_path):
    path = tmp_path / "prefix.jsonl"
    path.write_text(json.dumps({"text": "Two\nlines"}) + "\n\n" + json.dumps({"text": "One"}))
    assert open_prefix(str(path)).texts == ("Two\nlines", "One")


@pytest.mark.parametrize("line", ['{"txt": 1}', "[]", "{", '{"text": 3}'])
def test_a_line_without_a_text_is_named(tmp_path, line):
    path = tmp_path / "prefix.jsonl"
    path.write_text(f'{{"text": "One"}}\n{line}\n')
    with pytest.raises(DataError, match=r"prefix.path is .*line 2"):
        open_prefix(str(path))


def test_a_prefix_that_is_not_there_or_too_small(tmp_path, prefix_file):
    with pytest.raises(DataError, match="prefix.path is .*no such file"):
        open_prefix(str(tmp_path / "none.txt"))
    with pytest.raises(DataError, match=r"it has 8 texts, but 9 shots.*method.recall.shots"):
        open_prefix(str(prefix_file)).shots(9)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Pac(augmentation="synonym"), "augmentation is 'synonym'.*swap, delete"),
        (lambda: Pac(n=0), "n is 0"),
        (lambda: Neighbor(share=0.0), "share is 0.0"),
        (lambda: Recall(shots=0), "shots is 0"),
        (lambda: Surp(entropy=0.0), "entropy is 0.0"),
        (lambda: Pac(top=0.0), "top is 0.0"),
    ],
)
def test_hyperparameters_out_of_range_are_named(make, words):
    with pytest.raises(ConfigError, match=words):
        make()


# --- the whole stage ---------------------------------------------------------------------------


@pytest.fixture
def stage(tmp_path, toy_folders):
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": t.text}) + "\n" for t in TEXTS))
    nodes = [yaml.safe_load(p.read_text()) for p in sorted(METHODS_FOLDER.glob("*.yaml"))]
    return DetectionStage(
        runs=str(tmp_path / "runs"),
        examples=ExamplesConfig(str(path)),
        model=ScoredModelConfig(str(toy_folders["target"])),
        method={name: node for each in nodes for name, node in each.items()},
        detection=DetectionConfig(device="cpu"),
    )


SLOW = {"cdd", "grad_norm", "info_rmia", "samia"}


def test_all_methods_are_scored_where_all_is_given(
    stage, toy_folders, masked_folder, contrasting_prefix_file
):
    corpus = {"corpus": stage.examples.path}
    given = replace(
        stage,
        reference=ReferenceConfig(str(toy_folders["reference"])),
        masked_lm=NeighborModelConfig(str(masked_folder)),
        prefix=PrefixConfig(str(contrasting_prefix_file)),
        method={**stage.method, "dc_pdd": {**stage.method["dc_pdd"], **corpus}},
    )
    first = run(given)
    assert set(open_scores(first.path).table["method"]) == set(stage.method) - SLOW
    assert {"reference", "masked_lm", "prefix"} <= set(first.inputs)
    assert run(replace(given, seed=1)).path != first.path


def test_of_all_methods_those_that_lack_something_are_left_out_and_said(stage, caplog):
    caplog.set_level("INFO")
    scored = set(open_scores(run(stage).path).table["method"])
    left_out = {
        **dict.fromkeys(("reference", "wbc", "ez_mia", "lt_mia"), "reference.path"),
        "neighbor": "masked_lm.path", "recall": "prefix.path",
        "con_recall": "members in prefix.path", "dc_pdd": "method.dc_pdd.corpus",
    }  # fmt: skip
    assert scored == set(stage.method) - set(left_out) - SLOW
    for name, need in left_out.items():
        assert f"leaves out {name}: it needs {need}" in caplog.text


@pytest.mark.parametrize(
    ("name", "need"), [("reference", "reference"), ("neighbor", "masked_lm"), ("recall", "prefix")]
)
def test_a_method_chosen_by_name_needs_its_path(stage, name, need):
    chosen = replace(stage, method={name: stage.method[name]})
    with pytest.raises(ConfigError, match=rf"method.{name} needs {need}.path, which is null. Give"):
        run(chosen)


def test_without_draws_the_seed_changes_nothing(stage):
    chosen = replace(stage, method={n: stage.method[n] for n in ("loss", "lowercase")})
    assert run(chosen).path == run(replace(chosen, seed=1)).path


def test_scores_out_of_the_ordinary_are_counted_and_said(stage, caplog):
    never_sure = {**stage.method["surp"], "entropy": 1e-9}
    artifact = run(replace(stage, method={"surp": never_sure, "loss": stage.method["loss"]}))
    assert artifact.counts["flagged"] == len(TEXTS)
    assert "surp k=0.4,entropy=1e-09: 3 of 3 texts: no surprising token" in caplog.text


def test_the_beginning_of_infilled_copies_has_one_token_fewer_in_each():
    copies = tuple(np.arange(9 - copy) for copy in range(9))
    view = view_of(Pass("target", "infill"))
    beginnings = [view.stats_of_beginning(copies, tokens) for tokens in (4, 1)]
    assert [[len(copy) for copy in beginning] for beginning in beginnings] == [[3, 2, 1], [0]]


@pytest.mark.parametrize(
    ("context", "tokens", "expected_ids"),
    [(12, 4, [*range(8)]), (11, 4, [0, *range(2, 8)]), (6, 4, [0, 7]), (None, 4, [*range(8)])],
)
def test_a_prompt_is_shortened_at_its_beginning_until_the_new_tokens_fit(
    context, tokens, expected_ids
):
    def tokenizer(text, add_special_tokens=True):
        return {"input_ids": [0, 5] if add_special_tokens else [5]}

    reader = SimpleNamespace(source=SimpleNamespace(context=context), tokenizer=tokenizer)
    prompt = Tokens(TEXTS[0], 0, [*range(8)], truncated=False, windowed=False)
    assert shorten_prompt(reader, prompt, tokens).ids == expected_ids
