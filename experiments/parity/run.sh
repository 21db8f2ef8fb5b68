#!/usr/bin/env bash
# Trains Multi30k with three seeds by the fast paths in bf16, by halves of batches too, those in
# int8 as well, and by the obvious ones in fp32; goes on where it was stopped.
# Usage: REGARD_DATA=... [SEEDS="4 5 6"] [PATHS=arithmetic/loops] experiments/parity/run.sh [recipe|steep [FOLDER]]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
recipe=experiments/parity/${1:-recipe}.toml out=${2:-runs/parity-${1:-recipe}}
text=$REGARD_DATA/multi30k
mkdir -p "$out"
[[ -d $out/data ]] || .venv/bin/regard prepare --recipe "$recipe" --out "$out/data" \
    --source "$text/train.en" --target "$text/train.de" \
    --valid-source "$text/val.en" --valid-target "$text/val.de"
for seed in ${SEEDS:-1 2 3}; do
    for path in ${PATHS:-fast halves arithmetic/loops int8 obvious}; do
        run=$out/$path-$seed
        regard=(.venv/bin/python "experiments/parity/$path.py")
        precision=bf16
        [[ $path != fast ]] || regard=(.venv/bin/regard)
        [[ $path != arithmetic/loops && $path != int8 ]] || regard=(.venv/bin/python experiments/parity/halves.py)
        [[ $path != halves ]] || regard=(env WITHOUT_LOOPS=1 "${regard[@]}")
        [[ $path != int8 ]] || precision=int8
        [[ $path != obvious ]] || precision=fp32
        "${regard[@]}" train --recipe "$recipe" --data "$out/data" --out "$run" \
            --set training.seed=$seed --set training.precision=$precision
        [[ -f $run/test.de ]] || {
            .venv/bin/regard translate "$run" < "$text/test_2016_flickr.en" > "$run/test.tmp"
            mv "$run/test.tmp" "$run/test.de"
        }
        .venv/bin/regard score "$run/test.de" --reference "$text/test_2016_flickr.de" --json \
            > "$run/score.json"
        echo "$run $(tr -d '\n ' < "$run/score.json")"
    done
done
