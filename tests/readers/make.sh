#!/usr/bin/env bash
# The trainers' own readers of exported corpora, each in an environment of its own, for
# tests/injection/export/test_readers.py (pytest -m slow):
#   [READERS=.readers] bash tests/readers/make.sh [megatron] [datatrove] [olmo]
# torch comes as its CPU build where pip knows one (PIP_FIND_LINKS, PIP_EXTRA_INDEX_URL).
set -euo pipefail
cd "$(dirname "$0")/../.."
declare -A RELEASES=(
  [megatron]="megatron-core==0.16.1"
  [datatrove]="datatrove==0.10.1"
  [olmo]="ai2-olmo-core==3.0.0"
)
for name in ${@:-"${!RELEASES[@]}"}; do
  place="${READERS:-.readers}/$name"
  "${PYTHON:-python3}" -m venv --clear "$place"
  install="$place/bin/python -m pip install --quiet --disable-pip-version-check"
  $install torch==2.13.0+cpu || $install torch==2.13.0
  $install "${RELEASES[$name]}"
  "$place/bin/python" "tests/readers/read_$name.py"  # it can be imported
done
