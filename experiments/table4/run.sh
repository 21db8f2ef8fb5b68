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

# Silver trees first, gold trees last: the same run goes on with gold trees alone.
last=$out/wsj-silver-gold
if [[ ! -d $last ]]; then
    .venv/bin/regard prepare --trees "$wsj/train.mrg" --valid-trees "$wsj/dev.mrg" \
        --tokenizer "$out/wsj-silver/tokenizer.json" --recipe "$here/wsj-silver-gold.toml" \
        --out "$out/wsj-gold-data"
    cp -r "$out/wsj-silver" "$last.new"
    mv "$last.new" "$last"
fi
train wsj-silver-gold --data "$out/wsj-gold-data" --accept-changes

for run in wsj wsj-silver wsj-silver-gold; do
    for half in dev test; do
        .venv/bin/python "$here/table4.py" "$out/$run" "$wsj/$half.mrg" --beam 21
    done
done
.venv/bin/python "$here/table4.py" "$out/craft" "$craft/dev.mrg" --beam 21
.venv/bin/python "$here/table4.py"
