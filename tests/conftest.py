"""Settings for the whole suite."""

import os

import pytest

os.environ.setdefault("WANDB_MODE", "offline")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # as the command line sets it
if sharers := int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "0")):
    threads = max(1, (os.cpu_count() or 1) // sharers)
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))  # before torch is imported


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol():
    """What a stage that runs in this process tells its children is not told to the next test's."""
    before = dict(os.environ)
    try:
        return (yield)
    finally:
        os.environ.clear()
        os.environ.update(before)
