"""The definitions again, as plain float64 loops over one text at a time.

Nothing here is shared with the package but the passes' names. A text's `views` are its copies by
the pass that read them, a copy is a row a scored token.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

Rows = list[dict[str, float]]
Views = dict[str, list[Rows]]


def token_rows(model: Any, ids: list[int]) -> Rows:
    """For each token after the first: logprob, mean, std, top_logprob, top_id."""
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].double()
    rows = []
    for t in range(1, len(ids)):
        logp = torch.log_softmax(logits[t - 1], dim=-1)
        p = logp.exp()
        mean = float((p * logp).sum())
        rows.append(
            {
                "logprob": float(logp[ids[t]]),
                "mean": mean,
                "std": math.sqrt(float((p * (logp - mean) ** 2).sum())),
                "top_logprob": float(logp.max()),
                "top_id": int(logp.argmax()),
            }
        )
    return rows


def mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def lowest(values: list[float], k: float) -> float:
    return mean(sorted(values)[: max(1, int(k * len(values) + 1e-9))])


def original(views: Views) -> Rows:
    (rows,) = views["target/original"]
    return rows


def logprobs(rows: Rows) -> list[float]:
    return [row["logprob"] for row in rows]


def z(row: dict[str, float]) -> float:
    return (row["logprob"] - row["mean"]) / row["std"]


def loss(views: Views, text: str) -> float:
    return mean(logprobs(original(views)))


def zlib_score(views: Views, text: str) -> float:
    return loss(views, text) / len(zlib.compress(text.encode("utf-8")))


def ratio(over: Rows, under: Rows) -> float:
    """A text that is certain has a mean of -1e-8, so that it can be divided by."""
    return min(mean(logprobs(over)), -1e-8) / min(mean(logprobs(under)), -1e-8)


def lowercase(views: Views, text: str) -> float:
    return ratio(views["target/lowercase"][0], original(views))


def recall(views: Views, text: str, shots: int) -> float:
    return ratio(views[f"target/prefix?shots={shots}"][0], original(views))


def reference(views: Views, text: str) -> float:
    return loss(views, text) - mean(logprobs(views["reference/original"][0]))


def versions(views: Views, augmentation: str, n: int, share: float) -> list[Rows]:
    told = {"lowercase": "", "given": f"?n={n}"}.get(augmentation, f"?n={n}&share={share}")
    return views[f"target/{augmentation}{told}"]


def neighbor(views: Views, text: str, **augmented: Any) -> float:
    return loss(views, text) - mean([mean(logprobs(v)) for v in versions(views, **augmented)])


def distance(rows: Rows, top: float, bottom: float) -> float:
    values = logprobs(rows)
    return -lowest([-value for value in values], top) - lowest(values, bottom)


def polarized_distance(views: Views, text: str, top: float, bottom: float) -> float:
    return -distance(original(views), top, bottom)


def pac(views: Views, text: str, top: float, bottom: float, **augmented: Any) -> float:
    others = [distance(rows, top, bottom) for rows in versions(views, **augmented)]
    return mean(others) - distance(original(views), top, bottom)


def min_k(views: Views, text: str, k: float) -> float:
    return lowest(logprobs(original(views)), k)


def max_k(views: Views, text: str, k: float) -> float:
    return -lowest([-value for value in logprobs(original(views))], k)


def min_k_plus_plus(views: Views, text: str, k: float) -> float:
    return lowest([z(row) for row in original(views)], k)


def mean_only(views: Views, text: str, k: float) -> float:
    return lowest([row["logprob"] - row["mean"] for row in original(views)], k)


def std_only(views: Views, text: str, k: float) -> float:
    return lowest([row["logprob"] / row["std"] for row in original(views)], k)


def gap_k(views: Views, text: str, k: float, window: int) -> float:
    gaps = [(row["logprob"] - row["top_logprob"]) / row["std"] for row in original(views)]
    width = min(window, len(gaps))
    return lowest([mean(gaps[i : i + width]) for i in range(len(gaps) - width + 1)], k)


def least_likely(views: Views, k: float) -> Rows:
    rows = original(views)
    return sorted(rows, key=lambda row: row["logprob"])[: max(1, int(k * len(rows) + 1e-9))]


def surprising(views: Views, k: float, entropy: float) -> Rows:
    return [row for row in least_likely(views, k) if -row["mean"] < entropy]


def surp(views: Views, text: str, k: float, entropy: float) -> float:
    return mean(logprobs(surprising(views, k, entropy) or least_likely(views, k)))


def infilling(views: Views, text: str, m: int | str, k: float) -> float:
    """Row i of copy j is about token i + j, after token i was replaced by the likeliest."""
    known = {"auto": 5, "all": "all"}
    key = f"target/infill?future={known.get(m, m)}" if m else "target/original"
    rows, *after = views[key]
    many = {"auto": 1 if len(rows) <= 32 else 5, "all": len(rows)}.get(m, m)
    ratios = []
    for i, row in enumerate(rows):
        likeliest = (row["top_logprob"] - row["mean"]) / row["std"]
        last = min(many, len(rows) - 1 - i)
        change = [z(rows[i + j]) - z(after[j - 1][i]) for j in range(1, last + 1)]
        ratios.append(z(row) - likeliest + sum(change))
    return lowest(ratios, k)


def gains(views: Views) -> list[float]:
    (other,) = views["reference/original"]
    return [a["logprob"] - b["logprob"] for a, b in zip(original(views), other, strict=True)]


def wbc(views: Views, text: str) -> float:
    """One token is one window."""
    values, shares = gains(views), []
    for width in (2, 3, 4, 6, 9, 13, 18, 25, 32, 40) if len(values) > 1 else (1,):
        sums = [math.fsum(values[i : i + width]) for i in range(max(0, len(values) - width + 1))]
        if sums:
            shares.append(mean([float(total > 0) for total in sums]))
    return mean(shares)


def error_gains(views: Views) -> list[float]:
    pairs = zip(gains(views), original(views), strict=True)
    return [gain for gain, row in pairs if row["logprob"] < row["top_logprob"]]


def ez_mia(views: Views, text: str) -> float:
    """A text without errors has 2, one whose errors have not moved 1/2."""
    errors = error_gains(views)
    up = math.fsum(max(gain, 0.0) for gain in errors)
    down = math.fsum(max(-gain, 0.0) for gain in errors)
    if not errors:
        return 2.0
    return up / (up + down) if up + down else 0.5


def lt_mia_numbers(views: Views) -> list[list[float]]:
    """For each token what the network reads: of both models, the gain near it, and of the text."""
    target, (other,), gain = original(views), views["reference/original"], gains(views)

    def near(t: int, reach: int) -> float:
        return mean([gain[i] for i in range(len(gain)) if abs(i - t) <= reach])

    def spread(values: list[float]) -> float:
        return math.sqrt(mean([(value - mean(values)) ** 2 for value in values]))

    of_text = [logprobs(target), logprobs(other), gain]
    rows = []
    for t, pair in enumerate(zip(target, other, strict=True)):
        row = []
        for one in pair:
            row += [one["logprob"], one["mean"], one["std"]]
            row += [(one["logprob"] - one["mean"]) / (one["std"] + 0.1)]
            row += [one["logprob"] - one["top_logprob"]]
        row += [gain[t], near(t, 1), near(t, 4)]
        rows.append([*row, *map(mean, of_text), *map(spread, of_text), math.fsum(gain)])
    return rows


def lt_mia(
    views: Views, text: str, weights: str | None = None, allow_trained: bool = False
) -> float:
    """The network, a unit at a time."""
    path = Path(weights) if weights else Path(__file__).parents[2] / "detection/methods/lt_mia.json"
    net = json.loads(path.read_text())["network"]

    def dot(one: list[float], two: list[float]) -> float:
        return math.fsum(a * b for a, b in zip(one, two, strict=True))

    def layer(inputs: list[float], name: str) -> list[float]:
        return [
            math.tanh(bias + dot(inputs, [row[unit] for row in net[name]]))
            for unit, bias in enumerate(net[f"{name}_bias"])
        ]

    hidden = []
    for row in lt_mia_numbers(views):
        scaled = zip(row, net["center"], net["scale"], strict=True)
        inputs = [min(5.0, max(-5.0, (value - center) / scale)) for value, center, scale in scaled]
        hidden.append(layer(layer(inputs, "first"), "second"))
    shares = [math.exp(dot(units, net["attention"])) for units in hidden]
    total = math.fsum(shares)
    columns = [*zip(*hidden, strict=True)]
    weighted = [dot([*column], shares) / total for column in columns]
    return dot([*weighted, *(mean([*c]) for c in columns)], net["output"]) + net["output_bias"]


def info_rmia(views: Views, text: str) -> float:
    (population,) = views["target/population"]
    pairs = zip(gains(views), population, strict=True)
    return mean([gain - row["logprob"] for gain, row in pairs])


def dc_pdd(views: Views, text: str, corpus: str, characters: int, limit: float) -> float:
    """A frequency of 1, whose log is 0, marks a token that has been there before."""
    (frequencies,) = next(views[key] for key in views if key.startswith("target/unigram?"))
    pairs = zip(original(views), frequencies, strict=True)
    return mean([
        min(math.exp(row["logprob"]) * -frequency["logprob"], limit)
        for row, frequency in pairs
        if frequency["logprob"] < 0
    ])  # fmt: skip


def con_recall(views: Views, text: str, shots: int, gamma: float) -> float:
    over = views[f"target/member_prefix?shots={shots}"][0]
    return recall(views, text, shots) - gamma * ratio(over, original(views))


# By the config's name.
LOOPS: dict[str, Callable[..., float]] = {
    "con_recall": con_recall,
    "dc_pdd": dc_pdd,
    "ez_mia": ez_mia,
    "gap_k": gap_k,
    "infilling": infilling,
    "info_rmia": info_rmia,
    "loss": loss,
    "lowercase": lowercase,
    "lt_mia": lt_mia,
    "max_k": max_k,
    "mean_only": mean_only,
    "min_k": min_k,
    "min_k_plus_plus": min_k_plus_plus,
    "neighbor": neighbor,
    "pac": pac,
    "polarized_distance": polarized_distance,
    "recall": recall,
    "reference": reference,
    "std_only": std_only,
    "surp": surp,
    "wbc": wbc,
    "zlib": zlib_score,
}
