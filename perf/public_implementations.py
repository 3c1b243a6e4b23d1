"""Compares methods, objectives and metrics with public implementations, number by number.

    python -m perf.public_implementations REPOSITORIES PYTHON MATERIAL [MODEL [RATE]]

REPOSITORIES is a folder with checkouts of ez-mia, WBC, CON-RECALL, DC-PDD, mimir, pandora-llm,
fast-mia, open-unlearning and Masterthesis, and CoDeC's notebook as codec.ipynb (which ones and
their commits: docs/validation/public-implementations.md). PYTHON is an interpreter of an
environment for them. The texts, the models and the printed numbers are kept in MATERIAL. MODEL is a
Hugging Face folder or a GGUF file; the reference is this model, and the target the same after eight
passes over half of the texts at the learning rate RATE (2e-5). Without MODEL it is the small LLaMA
of tests/golden.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import yaml
from hydra import compose, initialize_config_dir

from contamination.audits.base import AuditStage
from contamination.audits.unlearning.answer_sets import AnsweredQuestion, read_answers
from contamination.audits.unlearning.exact_memorization import exact_memorization
from contamination.audits.unlearning.extraction_strength import extraction_strength
from contamination.audits.unlearning.forget_quality import forget_quality
from contamination.audits.unlearning.inputs import AuditedModel
from contamination.audits.unlearning.model_utility import answer_probability, model_utility
from contamination.audits.unlearning.privleak import privleak
from contamination.audits.unlearning.truth_ratio import mean_closeness_to_1
from contamination.core.config import CONF, convert_config
from contamination.core.models import load_model, load_tokenizer
from contamination.data.config import ExamplesConfig
from contamination.data.examples import make_text
from contamination.detection.config import (
    METHODS_FOLDER,
    DetectionConfig,
    DetectionStage,
    PrefixConfig,
    ReferenceConfig,
    ScoredModelConfig,
)
from contamination.detection.loaded_model import LoadedModel
from contamination.detection.models.hf_model import HFModel
from contamination.detection.run import run
from contamination.detection.scores import open_scores
from contamination.detection.tasks.context_drop import context_drops, draw_contexts
from contamination.injection.config import InjectionStage
from contamination.injection.finetuning.prompts import EncodedText
from contamination.injection.pool import read_candidates
from contamination.training.objectives.idk_dpo import IdkDPO, batch_of_texts
from contamination.training.objectives.kl_retain import RetainedKL, kl_divergences
from contamination.training.objectives.likelihood import Likelihood
from contamination.training.objectives.npo import text_logprobs
from contamination.training.objectives.rmu import RMU, RetainedActivations
from contamination.training.objectives.simnpo import SimNPO

EXAMPLES = {"boolq": 8, "commonsenseqa": 16, "truthfulqa": 16}
SMALL = Path(__file__).parents[1] / "tests" / "golden" / "target"
LONGEST_CHARACTERS, SHOTS, LAYER, PASSES = 560, 4, 1, 8
CPU = DetectionConfig(device="cpu")
METHODS = ("ez_mia", "wbc", "info_rmia", "dc_pdd", "grad_norm", "con_recall")
AUROCS = ((0.98, 0.5), (0.3, 0.5), (2e-5, 0.51), (0.7, 0.62))
UTILITIES = (0.91, 0.42, 0.55, 0.61, 0.38, 0.29, 0.73, 0.8, 0.47)

Numbers = dict[str, Any]


def main() -> None:
    """Makes the material, runs both sides, and prints a line per number."""
    from perf.public_code import RUNS

    repositories, python, folder = sys.argv[1:4]
    place = Path(folder).absolute()
    if not (place / "material.json").exists():
        make_material(place, *(sys.argv[4:] or [str(SMALL)]))
    material = json.loads((place / "material.json").read_text())
    ours = cached(place / "ours.json", lambda: our_numbers(place, material))
    script = Path(__file__).with_name("public_code.py")
    for name in RUNS:
        command = [python, str(script), name, str(Path(repositories).absolute()), str(place)]

        def call(command: Sequence[str] = command) -> Numbers:
            answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd=place)
            return cast(Numbers, json.loads(answer.stdout))

        try:
            numbers = cached(place / f"{name}.json", call)
        except subprocess.CalledProcessError as error:
            print(f"{name}: {error}", flush=True)
            continue
        for number, theirs in numbers.items():
            print(f"{name}: {number}: {compare(number, theirs, ours, material)}", flush=True)


def cached(path: Path, make: Any) -> Numbers:
    """Returns the numbers in a file, which is written if it does not exist."""
    if not path.exists():
        path.write_text(json.dumps(make(), default=float))
    return cast(Numbers, json.loads(path.read_text()))


def make_material(place: Path, path: str, rate: str = "2e-5") -> None:
    """Writes the models, the texts and everything that both sides have to share."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        names = ",".join(EXAMPLES)
        words = [f"benchmark=[{names}]", "injection.benchmark_source=embedded"]
        stage = convert_config(compose("injection", words), InjectionStage)
    texts: list[tuple[str, int]] = []
    prefixes: list[str] = []
    questions = []
    for candidates in read_candidates(stage):
        short = [e for e in candidates.examples if len(e.text) < LONGEST_CHARACTERS]
        scored, others = short[: EXAMPLES[candidates.name]], short[EXAMPLES[candidates.name] :]
        is_short = candidates.name == "truthfulqa"  # questions alone, shorter than WBC's windows
        strings = [e.text.splitlines()[0] if is_short else e.text for e in scored]
        texts += [(text, number % 2) for number, text in enumerate(strings)]
        if is_short:
            prefixes = [example.text + "\n" for example in others[: 2 * SHOTS]]
        if candidates.name == "commonsenseqa":
            questions = [split_answer(example.text) for example in scored]
    tokenizer = load_tokenizer("model.path", path)
    place.mkdir(parents=True)
    reference = load_model("model.path", path).float()
    save(reference, tokenizer, place / "reference")
    fine_tune(reference, tokenizer, [text for text, label in texts if label], float(rate))
    save(reference, tokenizer, place / "target")
    lines = [json.dumps({"text": text, "label": label}) for text, label in texts]
    (place / "texts.jsonl").write_text("\n".join(lines))
    shots = [{"text": t.rstrip("\n"), "member": n < SHOTS} for n, t in enumerate(prefixes)]
    (place / "prefix.jsonl").write_text("\n".join(map(json.dumps, shots)))
    (place / "corpus.txt").write_text("\n".join(text for text, _ in texts for _ in "123") + "\n")
    labelled_texts = [
        make_text(str(n), text, bool(label), "all") for n, (text, label) in enumerate(texts)
    ]
    direction = np.random.default_rng(0).random(reference.config.hidden_size)

    def encode(text: str) -> list[int]:
        return list(tokenizer(text)["input_ids"])

    starts = [len(encode(prompt)) for prompt, _ in questions]
    answered: list[dict[str, Any]] = [
        {
            "prompt": prompt,
            "texts": [prompt + answer for answer in answers],
            "answers": [encode(prompt + answer) for answer in answers],
            "start": start,
        }
        for (prompt, answers), start in zip(questions, starts, strict=True)
    ]
    rows = [(question["answers"][0], question["start"]) for question in answered[:4]]
    idk = [(encode(q["prompt"] + " I don't know."), q["start"]) for q in answered[:4]]
    material = {
        "texts": texts,
        "member_prefix": prefixes[:SHOTS],
        "nonmember_prefix": prefixes[SHOTS:],
        "contexts": draw_contexts(labelled_texts, 1, 0),
        "questions": answered,
        "forget": rows,
        "answers": idk,
        "retained": [(encode(texts[0][0]), 1)],
        "direction": (2.0 * direction / np.linalg.norm(direction)).tolist(),
        "aurocs": AUROCS,
        "utilities": UTILITIES,
    }
    (place / "material.json").write_text(json.dumps(material))


def split_answer(text: str) -> tuple[str, list[str]]:
    """Returns a question of CommonsenseQA, and its right answer before three wrong ones."""
    prompt, _, answer = text.rpartition("Answer:")
    options = [line[3:] for line in prompt.splitlines()[1:] if line[1:3] == ". "]
    right = answer.strip()[3:]
    wrong = [option for option in options if option != right][:3]
    return prompt.splitlines()[0] + "\nAnswer:", [f" {a}" for a in (right, *wrong)]


def save(model: Any, tokenizer: Any, folder: Path) -> None:
    """Writes a folder that transformers 4 reads as transformers 5 does."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    rope = config.get("rope_parameters") or {}
    if "rope_theta" in rope:  # otherwise transformers 4 takes 10,000
        config["rope_theta"] = rope["rope_theta"]
        (folder / "config.json").write_text(json.dumps(config))
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def fine_tune(model: Any, tokenizer: Any, texts: Sequence[str], rate: float) -> None:
    """Trains the model on the texts, one at a time."""
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.0)
    model.train()
    for _ in range(PASSES):
        for text in texts:
            ids = torch.tensor([tokenizer(text)["input_ids"]])
            model(input_ids=ids, labels=ids).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    model.eval()


def our_numbers(place: Path, material: Mapping[str, Any]) -> Numbers:
    """Returns everything of this side."""
    numbers = our_scores(place) | our_losses(place, material) | our_metrics(place, material)
    texts = [make_text(str(n), text, None, "all") for n, (text, _) in enumerate(material["texts"])]
    model = LoadedModel(HFModel.from_path("model.path", str(place / "target")), CPU)
    for name, skip in (("codec", 10), ("codec, all tokens", 0)):
        drops = context_drops(texts, model, 1, skip).texts["drop"]
        numbers[name] = [float(drop > 0) for drop in drops]
    return numbers


def our_scores(place: Path) -> Numbers:
    """Returns the methods' scores, in the order of the texts."""
    nodes = {n: yaml.safe_load((METHODS_FOLDER / f"{n}.yaml").read_text())[n] for n in METHODS}
    nodes["dc_pdd"]["corpus"] = str(place / "corpus.txt")
    nodes["con_recall"]["shots"] = SHOTS
    stage = DetectionStage(
        runs=str(place / "runs"),
        examples=ExamplesConfig(str(place / "texts.jsonl")),
        model=ScoredModelConfig(str(place / "target")),
        reference=ReferenceConfig(str(place / "reference")),
        prefix=PrefixConfig(str(place / "prefix.jsonl")),
        method=nodes,
        detection=CPU,
    )
    table = open_scores(run(stage).path).table
    table["number"] = table["example_id"].astype(int)
    return {
        str(name): rows.sort_values("number")["score"].tolist()
        for name, rows in table.groupby("method")
    }


def our_losses(place: Path, material: Mapping[str, Any]) -> Numbers:
    """Returns the objectives' losses, means over texts or tokens."""
    import torch

    target, reference = (
        load_model("model.path", str(place / name)).float().eval()
        for name in ("target", "reference")
    )
    width = max(len(ids) for ids, _ in (*material["forget"], *material["answers"]))
    forget, retained = batch(material["forget"], width), batch(material["retained"])
    texts = len(material["forget"])
    answers = [
        EncodedText(np.array(ids), np.arange(len(ids)) >= start, 0, len(ids))
        for ids, start in material["answers"]
    ]
    direction = np.array(material["direction"])
    length = float(np.linalg.norm(direction))
    rmu = RMU("output", False, LAYER, length, direction / length)
    counted = float(retained.loss_mask_BS.sum())
    ids_BS = retained.ids_BS
    with torch.no_grad():
        dpo = IdkDPO("output", False, 0.1, answers, np.zeros(2 * texts))
        numbers, logprobs = text_logprobs(reference, dpo._with_answers(forget))
        start = np.zeros(2 * texts)
        start[numbers.numpy()] = logprobs.double().numpy()
        dpo = IdkDPO("output", False, 0.1, answers, start)
        sums = {
            "simnpo": SimNPO("output", False, 4.5, 4.0).loss_sum(target, forget) / texts,
            "idk_dpo": dpo.loss_sum(target, forget) / texts,
            "rmu": rmu.loss_sum(target, forget) / texts,
            "rmu, retained": RetainedActivations("all", False, LAYER, reference).loss_sum(
                target, retained
            ),
            "retained nll": Likelihood("all").loss_sum(target, retained) / counted,
            "retained kl": RetainedKL("all", False, reference).loss_sum(target, retained) / counted,
            "retained kl, all positions": kl_divergences(
                reference(ids_BS).logits, target(ids_BS).logits
            ).mean(),
        }
    return {name: float(value) for name, value in sums.items()}


def batch(rows: Sequence[Any], width: int = 0) -> Any:
    """Returns rows of (ids, the first token that counts) as a batch of texts."""
    shape = len(rows), width or max(len(ids) for ids, _ in rows)
    ids_BS, numbers_BS, output_BS = np.zeros(shape, int), np.full(shape, -1), np.zeros(shape, bool)
    for row, (ids, start) in enumerate(rows):
        ids_BS[row, : len(ids)], numbers_BS[row, : len(ids)] = ids, row
        output_BS[row, start : len(ids)] = True
    return batch_of_texts(ids_BS, numbers_BS, output_BS, "output", packed=False)


def our_metrics(place: Path, material: Mapping[str, Any]) -> Numbers:
    """Returns the metrics of unlearning."""
    questions = [
        AnsweredQuestion(str(n), "all", None, q["prompt"], q["texts"][0], None, q["texts"][1:])
        for n, q in enumerate(material["questions"])
    ]
    stage = cast(AuditStage, SimpleNamespace(detection=CPU))
    numbers: Numbers = {"privleak": [privleak(*pair) for pair in material["aurocs"]]}
    ratios = {}
    for name in ("target", "reference"):
        source = HFModel.from_path("model.path", str(place / name))
        stats = read_answers(stage, cast(AuditedModel, SimpleNamespace(source=source)), questions)
        ratios[name] = np.array([answer.truth_ratio for answer in stats])
        shares = [answer_probability(s.answer, s.wrong, multiple_choice=True) for s in stats]
        numbers |= {
            f"es, {name}": [extraction_strength(answer.is_greedy) for answer in stats],
            f"em, {name}": [exact_memorization(answer.is_greedy) for answer in stats],
            f"truth_ratio, {name}": mean_closeness_to_1(ratios[name]),
            f"probability, {name}": float(np.mean(shares)),
        }
    numbers["forget_quality"] = forget_quality(ratios["target"], ratios["reference"])
    return numbers | {"model_utility": model_utility(material["utilities"])}


def compare(name: str, theirs: Any, ours: Numbers, material: Mapping[str, Any]) -> str:
    """Returns how far two numbers or lists of scores are apart."""
    from scipy.stats import spearmanr
    from sklearn.metrics import roc_auc_score

    shorter = name.removesuffix(", with its end"), name.partition(",")[0]
    key = next(candidate for candidate in (name, *shorter) if candidate in ours)
    if not isinstance(theirs, list):
        return f"ours {ours[key]:.7g}, theirs {theirs:.7g}, apart {abs(ours[key] - theirs):.1e}"
    pairs = [pair for pair in zip(ours[key], theirs, strict=True) if pair[1] is not None]
    our_values, their_values = np.array(pairs, float).T
    apart = np.abs(our_values - their_values)
    correlation = spearmanr(our_values, their_values).statistic
    line = f"apart {apart.max():.1e}, {np.sum(apart > 1e-4)} by > 1e-4 of {len(apart)}, "
    line += f"rank correlation {correlation:.4f}"
    if len(theirs) != len(material["texts"]) or name.startswith("codec"):
        return f"{line}, means {our_values.mean():.4f} and {their_values.mean():.4f}"
    labels = [
        label for (_, label), n in zip(material["texts"], theirs, strict=True) if n is not None
    ]
    areas = [roc_auc_score(labels, values) for values in (our_values, their_values)]
    return f"{line}, AUROC {areas[0]:.4f} and {areas[1]:.4f}"


if __name__ == "__main__":
    main()
