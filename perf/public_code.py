"""Runs public implementations as they are: `perf.public_implementations` starts it.

    PYTHON perf/public_code.py NAME REPOSITORIES MATERIAL

It runs in an environment of its own (transformers 4) and imports nothing of this package. Each
function below calls the public code of one repository on the material's models and texts and
returns its numbers by name. Where a repository can't be called without a server, a download or
another package, the comment says what stands in for it.
"""

# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import contextlib
import json
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

Numbers = dict[str, Any]
LONGEST = 256
"""Tokens: more than any text of the material has."""


class Material:
    """The texts, the numbers that both sides use, and the models."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.content = json.loads((folder / "material.json").read_text())
        self.texts: list[str] = [text for text, _ in self.content["texts"]]
        self.tokenizer = AutoTokenizer.from_pretrained(folder / "target")
        self.tokenizer.pad_token = self.tokenizer.pad_token or self.tokenizer.eos_token

    def model(self, name: str = "target") -> Any:
        """A model in float32."""
        return AutoModelForCausalLM.from_pretrained(
            self.folder / name, dtype=torch.float32, attn_implementation="eager"
        ).eval()

    def ids(self, text: str) -> list[int]:
        """A text's tokens."""
        return list(self.tokenizer(text)["input_ids"])

    def token_counts(self) -> np.ndarray:
        """How often each token occurs in the corpus."""
        counts = np.zeros(self.model().config.vocab_size, np.int64)
        for line in self.corpus():
            np.add.at(counts, self.tokenizer(line, add_special_tokens=False)["input_ids"], 1)
        return counts

    def corpus(self) -> list[str]:
        """The lines whose tokens are counted."""
        with (self.folder / "corpus.txt").open(encoding="utf-8") as lines:
            return list(lines)


def stand_in(*names: str) -> None:
    """Makes empty modules, whose attributes are the class `object`."""
    for name in names:
        module = types.ModuleType(name)
        module.__getattr__ = lambda _: object  # type: ignore[method-assign]
        module.__path__, module.__all__ = [], []  # type: ignore[attr-defined]
        sys.modules[name] = module


def ez_mia(repositories: Path, material: Material) -> Numbers:
    """JetBrains-Research/ez-mia: the attack on a pair of models."""
    sys.path.insert(0, str(repositories / "ez-mia"))
    from mia.models import compute_ez_scores

    models = material.model(), material.model("reference")
    options = {"sequence_length": LONGEST, "batch_size": 4}
    cpu = torch.device("cpu")
    scores = compute_ez_scores(material.tokenizer, *models, material.texts, cpu, **options)
    return {"ez_mia": [score / (1 + score) for score in scores]}  # P/N as P/(P+N)


def wbc(repositories: Path, material: Material) -> Numbers:
    """Stry233/WBC: the attack with the windows of its example configuration."""
    sys.path.insert(0, str(repositories / "WBC"))
    import yaml
    from attacks.wbc import WbcAttack

    config = yaml.safe_load((repositories / "WBC/configs/example.yaml").read_text())["Wbc"]
    config |= {"reference_model_path": str(material.folder / "reference"), "max_length": LONGEST}
    cpu = torch.device("cpu")
    attack = WbcAttack("wbc", material.model(), material.tokenizer, config, cpu)
    attack.ref_model.float()
    scores = [attack._process_batch({"text": [text]})["wbc"][0] for text in material.texts]
    return {"wbc": scores}


def con_recall(repositories: Path, material: Material) -> Numbers:
    """WangCheng0116/CON-RECALL, for gamma = 0.5."""
    sys.path.insert(0, str(repositories / "CON-RECALL"))
    from run import inference  # it asks for NLTK's data, which the scores do not need

    accelerator, tokenizer = types.SimpleNamespace(device="cpu"), material.tokenizer
    model, scores = material.model(), list[float]()
    prefixes = material.content["nonmember_prefix"], material.content["member_prefix"]
    for text in material.texts:
        example = inference(
            model, model, tokenizer, tokenizer, text, *prefixes, accelerator, len(prefixes[0]), {}
        )
        scores.append(example["pred"]["con-recall_0.5"])
    return {"con_recall": scores}


def dc_pdd(repositories: Path, material: Material) -> Numbers:
    """zhang-wei-chao/DC-PDD: its last script."""
    sys.path.insert(0, str(repositories / "DC-PDD"))
    import com_det_sco

    # its scripts read pickled lists, which an index of several tokens does not accept, and count
    # tokens by a loop over an undefined name: arrays and counts of the material stand in for them
    counts = material.token_counts()
    com_det_sco.tokenizer = material.tokenizer
    com_det_sco.fre_dis = (counts + 1) / (counts.sum() + len(counts))
    distributions = []
    model = material.model()
    for text in material.texts:
        ids = material.ids(text)
        logprobs = logprob_rows(model, ids)
        taken = logprobs[np.arange(len(ids) - 1), ids[1:]]
        mean = (np.exp(logprobs) * logprobs).sum(-1)
        square = (np.exp(logprobs) * logprobs**2).sum(-1) - mean**2
        distributions.append(
            {"text": text, "label": 0, "tar_prob": taken, "low_prob": taken, "ref_prob": taken,
             "input_ids": np.array(ids[1:]), "tar_prob_mu": mean, "tar_prob_sigma": square}
        )  # fmt: skip
    rows = com_det_sco.cal_met(distributions, "en", 512, 0.01)
    return {"dc_pdd": [-row["pred"]["DC-PDD"] for row in rows]}


def mimir(repositories: Path, material: Material) -> Numbers:
    """iamgroot42/mimir: GradNorm and DC-PDD."""
    sys.path.insert(0, str(repositories / "mimir"))
    stand_in("openai", "hf_olmo")
    from mimir.attacks.dc_pdd import DC_PDDAttack
    from mimir.attacks.gradnorm import GradNormAttack
    from mimir.models import Model

    target = object.__new__(Model)
    torch.nn.Module.__init__(target)
    target.model, target.tokenizer = material.model(), material.tokenizer
    target.device, target.name, target.max_length, target.stride = "cpu", "target", 2048, 1024
    gradient, scores = GradNormAttack(None, target), {}
    for name, order in (("grad_norm, p=2", 2), ("grad_norm, p=inf", np.inf)):
        scores[name] = [float(gradient._attack(text, None, p=order)) for text in material.texts]
    frequency = object.__new__(DC_PDDAttack)  # __init__ downloads a corpus
    frequency.target_model = target
    for name, counts in (
        ("dc_pdd", torch.from_numpy(material.token_counts()).float()),
        ("dc_pdd, its own counts", torch.zeros(len(material.tokenizer))),
    ):
        frequency.fre_dis = counts
        if "own" in name:
            frequency._fre_dis(material.corpus())
        # the last line of its __init__
        frequency.fre_dis = (1 + frequency.fre_dis) / (frequency.fre_dis.sum() + len(counts))
        scores[name] = [-float(frequency._attack(text, None)) for text in material.texts]
    return scores


def pandora(repositories: Path, material: Material) -> Numbers:
    """safr-ai-lab/pandora-llm: GradNorm of the paper's authors."""
    folder = repositories / "pandora-llm/src/pandora_llm"
    for name, path in (("pandora_llm", folder), ("pandora_llm.attacks", folder / "attacks")):
        package = types.ModuleType(name)  # its own imports every attack, and packages for them
        package.__path__ = [str(path)]
        sys.modules[name] = package
    stand_in("pandora_llm.utils", "pandora_llm.utils.plot_utils", "pandora_llm.attacks.Attack")
    from pandora_llm.attacks.GradNorm import compute_input_ids_all_norms

    torch.cuda.synchronize = lambda *_: None
    model, norms = material.model(), []
    embedding = model.get_input_embeddings().weight
    for text in material.texts:
        ids = torch.tensor([material.ids(text)])
        _, of_all, *_ = compute_input_ids_all_norms(model, embedding, ids, [2], device="cpu")
        norms.append(-float(of_all))
    return {"grad_norm": norms}


def fast_mia(repositories: Path, material: Material) -> Numbers:
    """Nikkei/fast-mia: DC-PDD and Con-ReCaLL."""
    sys.path.insert(0, str(repositories / "fast-mia"))
    # vLLM's engine: the same numbers by transformers
    stand_in("vllm", "vllm.distributed", "vllm.distributed.parallel_state", "vllm.lora")
    stand_in("vllm.lora.request", "vllm.outputs", "vllm.transformers_utils")
    stand_in("vllm.transformers_utils.tokenizer")
    from src.methods.conrecall import CONReCaLLMethod
    from src.methods.dcpdd import DCPDDMethod

    model = material.model()

    def outputs(texts: list[str], *_: Any) -> list[Any]:
        outputs_of_texts = []
        for text in texts:
            ids = material.ids(text)
            taken = logprob_rows(model, ids)[np.arange(len(ids) - 1), ids[1:]]
            rows = [{0: types.SimpleNamespace(logprob=value)} for value in taken.tolist()]
            outputs_of_texts.append(types.SimpleNamespace(prompt_logprobs=[None, *rows]))
        return outputs_of_texts

    frequency, counts = DCPDDMethod({}), material.token_counts().tolist()
    scores = {"dc_pdd": [
        frequency.process_output(output, material.ids(text)[1:], counts)
        for text, output in zip(material.texts, outputs(material.texts), strict=True)
    ]}  # fmt: skip
    contrast = CONReCaLLMethod({"pass_window": True, "num_shots": 4, "gamma": 0.5})
    contrast.get_outputs = outputs
    # prefixes are drawn from the labelled texts that are scored: those of the material stand in
    drawn = [material.content["member_prefix"], material.content["nonmember_prefix"]]
    module = sys.modules["src.methods.conrecall"]
    module.extract_prefix = lambda *_: drawn.pop(0)  # type: ignore[attr-defined]
    labels = [label for _, label in material.content["texts"]]
    scores["con_recall"] = contrast.run(material.texts, labels, None, material.tokenizer, None)
    return scores


def info_rmia(repositories: Path, material: Material) -> Numbers:
    """Soreseth/Masterthesis: InfoRMIA and WBC by others than the papers' authors."""
    sys.path.insert(0, str(repositories / "Masterthesis"))
    from src.attacks.reference_scores import WBC, TokenLevelInfoRMIA

    target, reference, tokenizer = material.model(), material.model("reference"), material.tokenizer
    scores = {}
    for temperature in (1.0, 2.0):
        attack = TokenLevelInfoRMIA(
            target, tokenizer, [reference], [tokenizer], temperature, "mean", "cpu"
        )
        predicted = [attack.predict(text)["token_level_informia"] for text in material.texts]
        # `predict` turns the sign, so that its members have low scores
        scores[f"info_rmia, T={temperature:.0f}"] = [-score for score in predicted]
    windows = WBC(target, tokenizer, reference, tokenizer, "cpu")
    scores["wbc"] = [windows.predict(text) for text in material.texts]
    return scores


def codec(repositories: Path, material: Material) -> Numbers:
    """NVIDIA-NeMo/Evaluator: the notebook of CoDeC's authors."""
    notebook = json.loads((repositories / "codec.ipynb").read_text())
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    names: dict[str, Any] = {}
    exec("import numpy as np\nimport torch\nfrom typing import List, Dict, Any\n"
         "from transformers import AutoTokenizer, AutoModelForCausalLM", names)  # fmt: skip
    for cell in cells:
        if cell.startswith(("class ModelHandler", "class CoDeC")):
            exec(cell, names)
    handler = names["ModelHandler"](str(material.folder / "target"))
    scores: Numbers = {}
    for name, tokens in (("codec", (10, -1)), ("codec, all tokens", (0, 10**9))):
        detector = names["CoDeC"](tokens)
        scores[name] = [
            detector.detect_contamination(text, context, handler)
            for text, context in zip(material.texts, material.content["contexts"], strict=True)
        ]
    return scores


def unlearning(repositories: Path, material: Material) -> Numbers:
    """locuslab/open-unlearning: losses, and GradNorm."""
    sys.path.insert(0, str(repositories / "open-unlearning/src"))
    from evals.metrics.mia.gradnorm import GradNormAttack
    from trainer.unlearn.dpo import DPO
    from trainer.unlearn.rmu import RMU
    from trainer.unlearn.simnpo import SimNPO

    target, reference = material.model(), material.model("reference")
    forget = batch_of(material.content["forget"])
    answers = batch_of(material.content["answers"])
    retained = batch_of(material.content["retained"])

    def of(trainer: Any, inputs: Any = forget, retain: str = "NLL", **fields: Any) -> list[float]:
        """The loss on the forget set, and that on the retained text."""
        losses = object.__new__(trainer)  # not a whole HF Trainer: its losses alone
        fields |= {"retain_loss_type": retain, "ref_model": reference, "model": target}
        vars(losses).update(fields)
        with torch.no_grad():
            both = [
                losses.compute_loss(target, {"forget": inputs, "retain": retained})
                for losses.gamma, losses.alpha in ((1.0, 0.0), (0.0, 1.0))
            ]
        return [float(loss) for loss in both]

    layers = {"model_module": target.model.layers[1], "ref_module": reference.model.layers[1]}
    direction = torch.tensor(material.content["direction"])[None, None]
    pair = {"original": forget, "alternate": answers}
    misdirection = of(RMU, retain="EMBED_DIFF", control_vec=direction, **layers)
    scores: Numbers = {
        "simnpo": of(SimNPO, beta=4.5, delta=4.0)[0],
        "idk_dpo": of(DPO, pair, beta=0.1)[0],
        "rmu": misdirection[0],
        "rmu, retained": misdirection[1],
        "retained nll": of(SimNPO, beta=1.0, delta=0.0)[1],
        "retained kl": of(SimNPO, retain="KL", beta=1.0, delta=0.0)[1],
    }
    one_by_one = [
        of(RMU, batch_of([row]), "EMBED_DIFF", control_vec=direction, **layers)[0]
        for row in material.content["forget"]
    ]
    scores["rmu, text by text"] = float(np.mean(one_by_one))
    scores["retained kl, all positions"] = scores["retained kl"]
    attack = object.__new__(GradNormAttack)
    attack.model, attack.p = target, 2
    end = material.tokenizer.eos_token_id  # it leaves out the last token, which is the end there
    rows = [[[*ids, end], 1] for ids in map(material.ids, material.texts)]
    norms = [-float(attack.compute_batch_values(batch_of([row]))[0]) for row in rows]
    return {**scores, "grad_norm, p=2": norms}


def metrics(repositories: Path, material: Material) -> Numbers:
    """locuslab/open-unlearning: metrics."""
    sys.path.insert(0, str(repositories / "open-unlearning/src"))
    from evals.metrics.memorization import (
        exact_memorization,
        extraction_strength,
        probability,
        probability_w_options,
        truth_ratio,
    )
    from evals.metrics.privacy import ks_test, privleak
    from evals.metrics.utility import hm_aggregate

    eos = material.tokenizer.eos_token_id
    questions = material.content["questions"]
    scores: Numbers = {}

    def evaluate(metric: Any, model: Any, rows: list[Any], end: bool) -> Any:
        data = [
            {**batch_of([[[*ids, eos] if end else ids, start]]), "index": torch.tensor([n])}
            for n, (ids, start) in enumerate(rows)
        ]
        options = {"data": data, "collators": lambda items: items[0], "batch_size": 1}
        return metric._metric_fn(model, **options)

    ratios = {}
    for name in ("target", "reference"):
        model = material.model(name)
        right = [[q["answers"][0], q["start"]] for q in questions]
        for title, metric in (("es", extraction_strength), ("em", exact_memorization)):
            by_index = evaluate(metric, model, right, True)["value_by_index"]
            scores[f"{title}, {name}"] = [by_index[n]["score"] for n in range(len(questions))]
        for end in (False, True):
            correct = evaluate(probability, model, right, end)
            wrong = [
                evaluate(probability, model, rows, end)["value_by_index"]
                for rows in ([[q["answers"][k], q["start"]] for q in questions] for k in (1, 2, 3))
            ]
            together = {
                n: {key: [values[n][key] for values in wrong] for key in ("prob", "avg_loss")}
                for n in range(len(questions))
            }
            answers = {"correct": correct, "wrong": {"value_by_index": together}}
            after = ", with its end" if end else ""
            ratio = truth_ratio._metric_fn(
                model, pre_compute=answers, aggregator="closer_to_1_better"
            )
            scores[f"truth_ratio, {name}{after}"] = ratio["agg_value"]
            shares = probability_w_options._metric_fn(model, pre_compute=answers)
            scores[f"probability, {name}{after}"] = shares["agg_value"]
            if not end:
                ratios[name] = ratio
    logs = {"retain_model_logs": {"retain": ratios["reference"]}}
    test = ks_test._metric_fn(None, pre_compute={"forget": ratios["target"]}, reference_logs=logs)
    scores["forget_quality"] = float(test["agg_value"])
    pairs, values = material.content["aurocs"], list[float]()
    for unlearned, retrained in pairs:
        logs = {"retain_model_logs": {"retain": {"agg_value": retrained}}}
        inputs = {"pre_compute": {"forget": {"agg_value": unlearned}}, "reference_logs": logs}
        values.append(privleak._metric_fn(None, **inputs)["agg_value"])
    scores["privleak"] = values
    utilities = {
        str(n): {"agg_value": value} for n, value in enumerate(material.content["utilities"])
    }
    scores["model_utility"] = float(
        hm_aggregate._metric_fn(None, pre_compute=utilities)["agg_value"]
    )
    return scores


def batch_of(rows: list[Any]) -> dict[str, torch.Tensor]:
    """Rows of (ids, the first token that counts), padded at the right, as its collator does."""
    width = max(len(ids) for ids, _ in rows)
    ids_BS = torch.zeros(len(rows), width, dtype=torch.long)
    labels_BS, mask_BS = torch.full_like(ids_BS, -100), torch.zeros_like(ids_BS)
    for row, (ids, start) in enumerate(rows):
        ids_BS[row, : len(ids)], mask_BS[row, : len(ids)] = torch.tensor(ids), 1
        labels_BS[row, start : len(ids)] = torch.tensor(ids[start:])
    return {"input_ids": ids_BS, "labels": labels_BS, "attention_mask": mask_BS}


def logprob_rows(model: Any, ids: list[int]) -> np.ndarray:
    """The log-probabilities of all tokens before each token after the first."""
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([ids])).logits[0, :-1]
    return torch.log_softmax(logits.double(), -1).numpy()


RUNS = {
    run.__name__: run
    for run in (
        ez_mia, wbc, con_recall, dc_pdd, mimir, pandora, fast_mia, info_rmia, codec, unlearning,
        metrics,
    )
}  # fmt: skip


def main() -> None:
    """Prints one repository's numbers as JSON."""
    name, repositories, folder = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    with contextlib.redirect_stdout(sys.stderr):
        numbers = RUNS[name](repositories, Material(folder))
    print(json.dumps(numbers, default=float))


if __name__ == "__main__":
    main()
