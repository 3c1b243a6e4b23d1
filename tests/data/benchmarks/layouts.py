"""A few rows of each benchmark's layout, made by hand: the columns and files of the real ones."""

import json

import pandas as pd

SEEN = "The harbour festival of 2014 drew 300 boats"
UNSEEN = "The lighthouse fair of 2023 drew 40 kites"


def write(folder, files):
    """Files of JSON lines: name → what stands in each line."""
    for name, lines in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def wikimia(folder):
    """`input` and `label` (1 = seen); no paraphrases of 256 words."""
    files = {}
    for length in (32, 64, 128, 256):
        rows = [
            {"input": f"{text} and {length} more.", "label": label}
            for label, text in ((0, UNSEEN), (1, SEEN))
        ]
        files[f"data/WikiMIA_length{length}.jsonl"] = rows
        flat = [
            {"input": f"{row['input']} {n}", "label": row["label"]} for row in rows for n in "ab"
        ]
        if length < 256:
            files[f"WikiMIA_length{length}_perturbed.jsonl"] = flat
            again = [{**row, "input": "So " + row["input"]} for row in rows]
            files[f"WikiMIA_length{length}_paraphrased.jsonl"] = again
            files[f"WikiMIA_length{length}_paraphrased_perturbed.jsonl"] = flat
    return write(folder, files)


def mimir(folder, domains=("arxiv", "github"), settings=("ngram_13_0.8",), n=25):
    """A JSON string a line; members below train, the others below test; neighbours in lists."""
    files = {}
    for domain in domains:
        for setting in settings:
            for side, text in (("train", SEEN), ("test", UNSEEN)):
                lines = [f"{text}, says {domain}'s {setting} line {row}." for row in range(2)]
                name = f"{domain}_{setting}"
                files[f"cache_100_200_1000_512/{side}/{name}.jsonl"] = lines
                swap = "_neighbors_25_bert_in_place_swap"
                files[f"cache_100_200_1000_512/{side}_neighbors/{name}{swap}.jsonl"] = [
                    [f"{line} Neighbour {k}." for k in range(n)] for line in lines
                ]
    return write(folder, files)


def stackmia(folder):
    """`snippet` and `label`."""
    rows = [{"snippet": SEEN, "label": 1}, {"snippet": UNSEEN, "label": 0}]
    return write(folder, {f"StackMIA_text_length{n}.jsonl": rows for n in (32, 64, 128, 256)})


def bookmia(folder):
    """`snippet` and `label`, with the book."""
    rows = [
        {"book_id": k, "book": f"Book {k}", "snippet_id": 0, "snippet": f"{text}.", "label": label}
        for k, (label, text) in enumerate(((1, SEEN), (0, UNSEEN)))
    ]
    return write(folder, {"BookMIA.jsonl": rows})


def converted(folder, files):
    """The hub's branch refs/convert/parquet: `<configuration>/<split>/0000.parquet`, … → rows."""
    for name, rows in files.items():
        path = folder / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pd.DataFrame(rows).to_parquet(path)
    return folder


def mimir_rows(name, n=25):
    """The four columns of MIMIR's data sets on the hub."""
    sides = {"member": SEEN, "nonmember": UNSEEN}
    return [
        {
            **{side: f"{text}, says {name} line {row}." for side, text in sides.items()},
            **{
                f"{side}_neighbors": [f"{text}, says {name} line {row}. N{k}" for k in range(n)]
                for side, text in sides.items()
            },
        }
        for row in range(2)
    ]


def tofu(folder, settings=("01", "05", "10")):
    """`question` and `answer`; the perturbed files also have wrong answers and paraphrases."""
    rows = {
        side: [{"question": f"Which festival {n}?", "answer": f"{text}."} for n in range(2)]
        for side, text in (("forget", SEEN), ("holdout", UNSEEN))
    }
    files = {f"{side}{n}.json": rows[side] for side in rows for n in settings}
    more = {"paraphrased_answer": "It drew 300.", "paraphrased_question": "What festival?",
            "perturbed_answer": ["It drew 200 boats.", "It drew no boats."]}  # fmt: skip
    files["forget10_perturbed.json"] = [{**row, **more} for row in rows["forget"]]
    return write(folder, files)


SIDES = ("forget", "holdout")


def muse(folder):
    """A configuration per folder: privleak with `text`, knowmem with questions, raw."""
    texts = {"forget": SEEN, "holdout": UNSEEN, "retain": "The old wall stands"}
    files = {
        f"privleak/{side}.jsonl": [{"text": f"{text} {n}."} for n in range(2)]
        for side, text in texts.items()
    }
    files["knowmem/forget_qa.jsonl"] = [{"question": "How many boats?", "answer": "300"}]
    files["raw/forget.jsonl"] = [{"text": SEEN}]
    return write(folder, files)


def muse_of_the_hub(folder, kept="retain"):
    """The published folder: parquet files named as in its README; Books has called `kept` retain2.

    The texts of privleak and raw are the only column; knowmem has answer, then question; verbmem
    prompt and gt.
    """
    texts = {
        **{f"privleak/{side}": text for side, text in zip(SIDES, (SEEN, UNSEEN), strict=True)},
        **{f"privleak/{kept}": "The old wall stands", "raw/retain1": "A gate", "raw/forget": SEEN},
    }
    rows = {split: [{"text": f"{text} {n}."} for n in range(2)] for split, text in texts.items()}
    rows["knowmem/forget_qa"] = [{"answer": "300", "question": "How many boats?"}]
    rows["verbmem/forget"] = [{"prompt": SEEN, "gt": "again"}]
    for split, split_rows in rows.items():
        path = folder / f"{split}-00000-of-00001.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pd.DataFrame(split_rows).to_parquet(path)
    return folder


def hubble(folder, domains=("passages_wikipedia", "biographies_yago")):
    """`text`, `meta` (JSON as text) and `duplicates`: train was inserted, test was not."""
    for domain in domains:
        for split, text, counts in (("train", SEEN, (1, 256)), ("test", UNSEEN, (0, 0))):
            rows = [
                {"text": f"{text}, {domain} {n}.", "duplicates": count,
                 "meta": json.dumps({"orig_idx": n, "duplicates": count})}
                for n, count in enumerate(counts)
            ]  # fmt: skip
            path = folder / domain / "data" / f"{split}-00000-of-00001.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            pd.DataFrame(rows).to_parquet(path)
    return folder
