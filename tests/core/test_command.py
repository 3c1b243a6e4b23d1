import subprocess
import sys


def test_the_command_itself_says_it_and_nothing_else(tmp_path):
    given = ["model=llama_7b", "model.path=./nowhere", f"runs={tmp_path}/runs"]
    run = subprocess.run(
        [sys.executable, "-m", "launch", *given], capture_output=True, text=True, check=False
    )
    assert run.returncode == 2
    assert_one_paragraph(run.stderr, ["model.path", "./nowhere", "no such folder"])
    assert not (tmp_path / "runs").exists()


def assert_one_paragraph(said, parts):
    paragraph = said.strip()
    assert paragraph.startswith("error: ")
    assert "\n" not in paragraph
    for part in parts:
        assert part in paragraph


def test_every_stage_shows_its_config():
    """One process after another costs seconds: here one shows them all."""
    code = """
import runpy, sys
for module in ("injection", "training", "detection", "analysis", "launch"):
    sys.argv = [module, "--cfg", "job"]
    try:
        runpy.run_module(module, run_name="__main__")
    except SystemExit as end:
        print("status", end.code)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.stdout.count("\nruns: runs\n") == run.stdout.count("\nstatus 0\n") == 5, run.stderr
