"""Answers questions with lm-evaluation-harness: run in an environment of its own, see test_harness.

python harness.py MODEL TASKS.json OUT.json, where TASKS is {name: JSONL file} of rows with
`prompt`, `options` and `answer`. OUT is, by name and row, each metric and the log-likelihoods.
"""

import json
import sys

from lm_eval import simple_evaluate
from lm_eval.api.task import ConfigurableTask

METRICS = ("acc", "acc_norm", "acc_bytes")


def task(name, file):
    return ConfigurableTask(config={
        "task": name,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": file}},
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "prompt",
        "doc_to_choice": "options",
        "doc_to_target": "answer",
        "target_delimiter": "",
        "metric_list": [
            {"metric": m, "aggregation": "mean", "higher_is_better": True} for m in METRICS
        ],
    })  # fmt: skip


def main(model, tasks, out):
    with open(tasks) as file:
        made = [task(name, path) for name, path in json.load(file).items()]
    found = simple_evaluate(
        model="hf", model_args={"pretrained": model, "dtype": "float32"}, tasks=made,
        device="cpu", batch_size=8, log_samples=True, bootstrap_iters=0,
    )  # fmt: skip
    rows = {
        name: [
            {
                **{metric: sample[metric] for metric in METRICS},
                "loglikelihoods": [pair[0] for pair in sample["filtered_resps"]],
            }
            for sample in sorted(samples, key=lambda sample: sample["doc_id"])
        ]
        for name, samples in found["samples"].items()
    }
    with open(out, "w") as file:
        json.dump(rows, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
