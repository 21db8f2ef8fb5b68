#!/usr/bin/env bash
# Trains Multi30k with several seeds in each configuration; continues where it was stopped.
# Usage: REGARD_DATA=... [SEEDS="4 5 6"] [CONFIGURATIONS="plain loops"] experiments/parity/run.sh
#            [recipe|steep [FOLDER]]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
regard=${REGARD:-.venv/bin/regard}
recipe=experiments/parity/${1:-recipe}.toml out=${2:-runs/parity-${1:-recipe}}
text=$REGARD_DATA/multi30k
mkdir -p "$out"
[[ -d $out/data ]] || $regard prepare --recipe "$recipe" --out "$out/data" \
    --source "$text/train.en" --target "$text/train.de" \
    --valid-source "$text/val.en" --valid-target "$text/val.de"
for seed in ${SEEDS:-1 2 3}; do
    for configuration in ${CONFIGURATIONS:-plain whole halves loops int8}; do
        run=$out/$configuration-$seed arithmetic=$configuration precision=bf16
        [[ $configuration != plain ]] || precision=fp32
        [[ $configuration != int8 ]] || arithmetic=loops precision=int8
        $regard train --recipe "$recipe" --data "$out/data" --out "$run" \
            --set training.seed=$seed --set training.precision=$precision \
            --set training.arithmetic=$arithmetic
        [[ -f $run/test.de ]] || {
            $regard translate "$run" < "$text/test_2016_flickr.en" > "$run/test.tmp"
            mv "$run/test.tmp" "$run/test.de"
        }
        $regard score "$run/test.de" --reference "$text/test_2016_flickr.de" --json \
            > "$run/score.json"
        echo "$run $(tr -d '\n ' < "$run/score.json")"
    done
done
