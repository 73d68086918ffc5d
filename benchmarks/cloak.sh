#!/usr/bin/env bash
# Commands like those behind the files of CLOAK in results/, for one recipe: one run a seed, its parts, the
# full audit of the first. It takes what is finished, so it can be stopped and started again.
#   OUT=measured SEEDS="0 1 2 3 4" PRESET=fast DEVICE=cuda bash benchmarks/cloak.sh motionsense-gender
set -euo pipefail
[ $# -eq 1 ] || { echo "usage: $0 RECIPE, such as motionsense-gender" >&2; exit 2; }
recipe=$1
out=${OUT:-measured} seeds=${SEEDS:-0 1 2 3 4} preset=${PRESET:-fast} device=${DEVICE:-cpu}
attackers=1     # seeds of attackers: few windows need several
published=paper # what preset paper is called for these data, as in the recipe
case $recipe in
motionsense-gender) data=motionsense protocol=paper policy="--keep activity --hide gender"
    parts="accuracy tradeoff growth avoided over_training overhead" ;;
audiomnist-gender) data=audiomnist protocol=paper policy="--keep digit --hide gender"
    parts="accuracy over_training" published=audiomnist ;;
geotec-gender) data=geotec protocol=recording parts=accuracy
    policy="--keep activity --hide gender,weight,subject" ;;
csi5300-user) data=csi5300-magnitude protocol=recording parts=accuracy attackers=3 published=wifihar
    policy="--keep activity --hide subject" ;;
images-tone) data=simulated-images protocol=subject parts=accuracy attackers=3 published=fast
    policy="--keep shape --hide tone" ;;
*) echo "no policy for $recipe" >&2; exit 2 ;;
esac
if [ "$preset" = fast ]; then
    audited=$data-cloak-$protocol-audit fitted=fast
else
    audited=$data-cloak-preset-$preset-$protocol-audit fitted=$published
fi
mkdir -p "$out/runs" "$out/$preset"
runs=() given=()
for seed in $seeds; do
    place=$out/runs/cloak-$preset-$recipe-$seed
    [ -d "$place" ] || sensorveil fit cloak --data "$data" --split "$protocol" $policy --preset "$fitted" \
        --seed "$seed" --device "$device" --out "$place" -q
    runs+=("$place")
    given+=(--run "$place")
done
missing=()
for part in $parts; do [ -f "$out/$preset/cloak-$recipe-$part.json" ] || missing+=(--part "$part"); done
if [ ${#missing[@]} -gt 0 ]; then # in one command: fixed models are trained once
    unfinished=$(mktemp -d "$out/unfinished.XXXX") # a part is written while it goes on
    sensorveil papers reproduce "cloak-$recipe" --preset "$preset" --method cloak "${given[@]}" "${missing[@]}" \
        --leaks 20 --device "$device" --out "$unfinished" -q
    mv "$unfinished"/*.json "$out/$preset/"
    rmdir "$unfinished"
fi
# Last, since attackers take longest.
if [ ${#runs[@]} -gt 1 ] && [ ! -d "$out/$audited" ]; then
    sensorveil audit "${runs[0]}" --shadow-run "${runs[1]}" --second-split none --seeds $attackers --examples 0 \
        --device "$device" --out "$out/$audited" -q
fi
