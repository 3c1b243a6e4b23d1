"""Settings for the whole suite."""

import os

import pytest

os.environ.setdefault("WANDB_MODE", "offline")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # as the command line sets it


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol():
    """What a stage that runs in this process tells its children is not told to the next test's."""
    before = dict(os.environ)
    try:
        return (yield)
    finally:
        os.environ.clear()
        os.environ.update(before)
