"""Every row of the table: exit 2, one paragraph with field and value, nothing written, at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bad_inputs.judge import complaints
from tests.bad_inputs.places import permitted
from tests.bad_inputs.server import Done
from tests.bad_inputs.table import ROWS

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def done(request, tmp_path_factory):
    """What each of the rows did that this session asks for, from one warm process."""
    mine = [item for item in request.session.items if item.module is request.module]
    names = [item.callspec.params["name"] for item in mine if hasattr(item, "callspec")]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}
    environment.pop("WANDB_API_KEY", None)
    environment |= {"NETRC": os.devnull, "WANDB_MODE": "offline"}
    ran = subprocess.run(
        [sys.executable, "-m", "tests.bad_inputs.server", str(tmp_path_factory.mktemp("bad"))],
        input=json.dumps(names), stdout=subprocess.PIPE, text=True, env=environment, check=True,
    )  # fmt: skip
    return {name: Done(**it) for name, it in json.loads(ran.stdout.splitlines()[-1]).items()}


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.slow] * row.slow) for n, row in ROWS.items()],
    ids=range(len(ROWS)),
)
def test_bad_input(done, name):
    row = ROWS[name]
    if row.place and not permitted():
        pytest.skip("this process may not mount a disk")
    found = list(complaints(row, done[name]))
    assert not found, f"{name}: {'; '.join(found)}\n{done[name].stderr[-3000:]}"


def test_the_table_is_as_long_as_it_should_be():
    assert sum(not row.slow for row in ROWS.values()) >= 160
