#!/usr/bin/env bash
# Trains the parsers of Table 4 on the treebanks at hand, one after another, and scores them; goes on
# where it was stopped. Usage: REGARD_DATA=... experiments/table4/run.sh [FOLDER]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
out=${1:-runs/table4} wsj=$REGARD_DATA/wsj-sample craft=$REGARD_DATA/craft
silver=$REGARD_DATA/raw-en/reuters.berkeley.mrg.xz
here=experiments/table4
train() {
    .venv/bin/regard train --task parse --recipe "$here/$1.toml" --out "$out/$1" "${@:2}"
}
train craft --trees "$craft/train.mrg" --valid-trees "$craft/dev.mrg"
train wsj-silver --trees "$wsj/train.mrg" --valid-trees "$wsj/dev.mrg" \
    --silver "$silver" --silver-share 0.8
train wsj --trees "$wsj/train.mrg" --valid-trees "$wsj/dev.mrg"
for scored in craft:$craft/dev wsj-silver:$wsj/dev wsj-silver:$wsj/test wsj:$wsj/dev wsj:$wsj/test; do
    .venv/bin/python "$here/table4.py" "$out/${scored%%:*}" "${scored#*:}.mrg"
done
.venv/bin/python "$here/table4.py"
