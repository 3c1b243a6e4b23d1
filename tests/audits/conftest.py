"""The models and tokenizers of detection's tests."""

from types import SimpleNamespace

import pytest

from contamination.audits.run import run
from tests.detection.conftest import *  # noqa: F403

pytest.register_assert_rewrite("tests.audits.checks")


@pytest.fixture
def folder_of(monkeypatch):
    """The folder of an audit that is prepared, but not conducted."""
    monkeypatch.setattr(
        "contamination.audits.run.build_or_open",
        lambda folder, *_, **__: SimpleNamespace(path=folder),
    )
    return lambda stage: run(stage).path
