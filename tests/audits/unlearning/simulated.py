"""Models without weights, and quantities of units that an original model learnt by heart."""

from types import SimpleNamespace

import numpy as np
import pandas as pd

from contamination.audits.unlearning.audit_units import AuditUnits
from contamination.audits.unlearning.inputs import AuditedModel, AuditedModels
from contamination.audits.unlearning.quantities import Quantity

NAMES = ["original", "half", "clean"]
MEMBERSHIP = [*[True] * 10, *[False] * 9, None]
MEMBERS, NONMEMBERS = slice(0, 10), slice(10, 19)
TEXT_IDS = ["m0", *(f"m{n}" for n in range(9)), *(f"n{n}" for n in range(8)), "n0", "x"]
"""Of 9 texts of members and 8 of non-members, the first has two units each."""


def named_models(*unlearned, clean="clean"):
    def model(name):
        return AuditedModel(name, None, SimpleNamespace(path=f"folder/{name}"))

    twin = clean and model(clean)
    return AuditedModels(model("original"), [model(name) for name in unlearned], twin)


MODELS = named_models("half")


def quantity_of(name, values, table, membership, *, is_score, seed=0):
    """A quantity of the table's units; each of its values belongs to a model."""
    table = table.assign(benchmark="b", member=pd.array(membership, "boolean"))
    return Quantity(name, AuditUnits(table, seed), values, is_score)


def simulated_quantity(name, is_score, membership=MEMBERSHIP):
    """Members are higher by the original, and a little by the half unlearned model."""
    rng = np.random.default_rng(len(name))
    noise = {model: 1.25 * rng.normal(size=len(membership)).round(2) for model in NAMES}
    memorised = {"original": 3, "half": 1, "clean": 0}
    is_member = np.array([side is True for side in membership])
    values = {model: noise[model] - 9 + memorised[model] * is_member for model in NAMES}
    units = [f"u{n}" for n in range(len(membership))]
    table = pd.DataFrame({"unit": units, "text_id": TEXT_IDS})
    return quantity_of(name, values, table, membership, is_score=is_score, seed=3)
