"""The import name: one top-level package in a wheel, from a checkout and in an editable install."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
OWN_PACKAGES = ("core", "data", "training", "conf")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel of the project, built without a network."""
    pytest.importorskip("setuptools", "77", reason="the wheel is built by setuptools")
    folder = tmp_path_factory.mktemp("wheel")
    call = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*call, "-w", str(folder), str(ROOT)], check=True, capture_output=True)
    (file,) = folder.glob("*.whl")
    return file


@pytest.fixture
def own_packages(tmp_path):
    """A folder with packages that are called as folders of this project are."""
    for name in OWN_PACKAGES:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("OWN = True\n")
    return tmp_path


def run(code, folder, path):
    """Run code in `folder`, whose own packages come first; return what it prints."""
    environment = {**os.environ, "PYTHONPATH": str(path)}
    call = [sys.executable, "-c", code]
    done = subprocess.run(call, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


CODE = """
import sys
for name in {names}:
    assert __import__(name).OWN
sys.argv = ["contamination", "list", "methods"]
from contamination.launch.cli import main
assert main() == 0
import contamination
print(contamination.open_corpus.__module__, contamination.__path__[-1])
""".replace("{names}", repr(OWN_PACKAGES))


@pytest.mark.slow
def test_a_wheel_has_one_top_level_name(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    top = {name.partition("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == {"contamination"}
    listed = {name.partition("/")[2] for name in names}
    assert {
        "conf/pipeline.yaml",
        "detection/methods/lt_mia.json",
        "core/report/page.css",
        "core/report/skeleton.html",
        "analysis/page/page.js",
    } <= listed


@pytest.mark.slow
def test_a_wheel_works_beside_packages_of_the_same_names(wheel, own_packages, tmp_path):
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    out = run(CODE, own_packages, site)
    assert "min_k_plus_plus" in out
    assert out.splitlines()[-1] == f"contamination.injection.corpus {site / 'contamination'}"


def test_a_checkout_works_beside_packages_of_the_same_names(own_packages):
    out = run(CODE, own_packages, ROOT)
    assert "min_k_plus_plus" in out
    assert out.splitlines()[-1] == f"contamination.injection.corpus {ROOT}"


def test_the_import_name_is_light():
    code = "import sys, contamination; print({'torch', 'hydra', 'pandas'} & {*sys.modules})"
    assert run(code, ROOT, ROOT) == "set()\n"
