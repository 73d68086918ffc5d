#!/usr/bin/env bash
# What results/ has of CLOAK for one recipe: one run a seed, the full audit of the first, the recipe's parts.
# It takes what is there already, so it can be stopped and started again.
#   OUT=measured SEEDS="0 1 2 3 4" PRESET=fast DEVICE=cuda bash scripts/cloak.sh motionsense-gender
set -euo pipefail
recipe=$1
out=${OUT:-measured} seeds=${SEEDS:-0 1 2 3 4} preset=${PRESET:-fast} device=${DEVICE:-cpu}
attackers=1 # seeds of attackers: few windows need several
case $recipe in
motionsense-gender) data=motionsense protocol=paper policy="--keep activity --hide gender"
    parts="accuracy tradeoff growth avoided over_training" ;;
audiomnist-gender) data=audiomnist protocol=paper policy="--keep digit --hide gender"
    parts="accuracy over_training" ;;
geotec-gender) data=geotec protocol=recording parts=accuracy
    policy="--keep activity --hide gender,weight,subject" ;;
csi5300-user) data=csi5300-magnitude protocol=recording parts=accuracy attackers=3
    policy="--keep activity --hide subject" ;;
images-tone) data=simulated-images protocol=subject parts=accuracy attackers=3
    policy="--keep shape --hide tone" ;;
*) echo "no policy for $recipe" >&2; exit 2 ;;
esac
[ "$preset" = fast ] && audited=$data-cloak-$protocol-audit || audited=$data-cloak-preset-$preset-$protocol-audit
mkdir -p "$out/runs"
runs=()
for seed in $seeds; do
    place=$out/runs/cloak-$preset-$recipe-$seed
    [ -d "$place" ] || sensorveil fit cloak --data "$data" --protocol "$protocol" $policy --preset "$preset" \
        --seed "$seed" --device "$device" --out "$place" -q
    runs+=("$place")
done
if [ ${#runs[@]} -gt 1 ] && [ ! -d "$out/$audited" ]; then
    sensorveil audit "${runs[0]}" --other "${runs[1]}" --beside none --seeds $attackers --examples 0 \
        --device "$device" --out "$out/$audited" -q
fi
missing=()
for part in $parts; do [ -f "$out/$preset/cloak-$recipe-$part.json" ] || missing+=(--part "$part"); done
if [ ${#missing[@]} -gt 0 ]; then # in one command: fixed models are trained once
    sensorveil reproduce "cloak-$recipe" --preset "$preset" --method cloak $(printf -- '--run %s ' "${runs[@]}") \
        "${missing[@]}" --leaks 20 --device "$device" --out "$out/$preset" -q
fi
