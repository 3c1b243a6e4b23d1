"""Settings for the whole suite."""

import logging
import os
import shutil
import subprocess
import sys

import pytest

os.environ.setdefault("WANDB_MODE", "offline")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # as the command line sets it
if shutil.which("nvidia-smi") is None:  # before Triton is imported, if it is
    os.environ.setdefault("TRITON_INTERPRET", "1")
if sharers := int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "0")):
    threads = max(1, (os.cpu_count() or 1) // sharers)
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))  # before torch is imported


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol():
    """What a stage that runs in this process sets is not left to the next test.

    That is what it tells its children in the environment, and handlers of its log, whose stream
    ends with the test.
    """
    before, handlers = dict(os.environ), [*logging.root.handlers]
    try:
        return (yield)
    finally:
        logging.root.handlers[:] = handlers
        os.environ.clear()
        os.environ.update(before)


@pytest.fixture(autouse=True, scope="session")
def leave_out_slow_calls():
    """What no test can notice, in this process and its forks; others are as users run them.

    Hydra composes a command's configuration twice, first for `hydra.mode`, which no file here and
    no test gives. What a test writes need not outlast a loss of power.
    """
    from hydra._internal.hydra import Hydra

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Hydra, "get_mode", lambda *_, **__: None)
        patch.setattr(os, "fsync", lambda _: None)
        yield


def pytest_runtest_setup(item):
    """A GPU test is skipped where there is no GPU."""
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("there is no CUDA device")


FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--window-size=1400,1000",
)


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    """Chromium, with what it logs and asks for."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    browser, service = shutil.which("chromium"), shutil.which("chromedriver")
    if not (browser and service):
        pytest.skip("Debian's packages chromium and chromium-driver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('browser')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    started = webdriver.Chrome(options=options, service=webdriver.ChromeService(service))
    yield started
    started.quit()


@pytest.fixture(scope="session")
def reader() -> None:
    """The reader of a record; asked for when it is needed, since it takes seconds."""
    line = [sys.executable, "-m", "wandb", "leet", "inspect", "--help"]
    if subprocess.run(line, capture_output=True).returncode:
        pytest.skip("this wandb has no `leet inspect`")
