#!/usr/bin/env bash
# The commands behind the files of Seal with a pool in results/, for one dataset: runs, evaluations, quick audits. What is
# finished is kept, so it can be stopped and started again. OUT must have no spaces in it.
#   OUT=measured SEEDS="0 1 2 3 4" AUDITS="0" WORKERS=2 bash benchmarks/seal.sh motionsense paper
#   bash benchmarks/seal.sh watch subject
set -euo pipefail
[ $# -eq 2 ] || { echo "usage: $0 DATA PROTOCOL, such as watch recording" >&2; exit 2; }
data=$1 protocol=$2
out=${OUT:-measured} seeds=${SEEDS:-0 1 2 3 4} audits=${AUDITS-0} workers=${WORKERS:-2}
case $data in # the settings were chosen on training people
motionsense) policy="--keep activity --hide gender,weight" folds=4 licence=MIT
    settings="ensemble_size=4 epochs=6 batch_size=128" ;;
geotec) policy="--keep activity --hide gender,weight" folds=5 licence="CC BY 4.0"
    settings="ensemble_size=4 dwell_seconds=0.25" ;;
watch) policy="--keep exercise --hide side" folds=5 licence=BSD-3-Clause settings="ensemble_size=4" ;;
audiomnist) policy="--keep digit --hide gender" folds=5 licence=MIT
    settings="rank_reference=person rhythm_bins=1" ;;
*) echo "no settings for $data" >&2; exit 2 ;;
esac
[ "$protocol" = subject ] || folds=1
case $out in *" "*) echo "OUT has spaces in it: $out" >&2; exit 2 ;; esac
others=" $seeds ${seeds%% *} " # a lazy attacker knows the run of the next seed (after the last, the first)
for seed in $audits; do
    other=${others#* $seed } other=${other%% *}
    [ -n "$other" ] && [ "$other" != "$seed" ] && [[ $others = *" $seed "* ]] ||
        { echo "an audit of seed $seed needs it and another one among SEEDS" >&2; exit 2; }
done
mkdir -p "$out/runs"
place() { echo "$out/runs/$data-seal-$protocol-fold$1-seed$2"; }
fit() { # fold, seed
    [ -d "$(place "$1" "$2")" ] && return
    sensorveil fit seal --data "$data" --split "$protocol" --fold "$1" $policy --seed "$2" \
        $(printf -- '--set %s ' $settings) --set generator=pool --set "donors=published under $licence" \
        --out "$(place "$1" "$2")" -q
}
folds_of() { for fold in $(seq 0 $((folds - 1))); do echo "$1" "$(place "$fold" "$2")"; done; }
score() { # seed
    local file=$out/$data-seal-$protocol-seed$1.json
    [ -f "$file" ] || sensorveil evaluate $(folds_of "" "$1") --quick -q --out "$file"
}
look() { # seed
    local place=$out/$data-seal-$protocol-audit-seed$1 other=${others#* $1 }
    [ -d "$place" ] || sensorveil audit $(folds_of "" "$1") $(folds_of --shadow-run "${other%% *}") --quick \
        --second-split none --examples 0 -q --out "$place"
}
export -f fit score look place folds_of
export data protocol out policy folds licence settings others
{
    for seed in $seeds; do for fold in $(seq 0 $((folds - 1))); do echo "fit $fold $seed"; done; done
} | xargs -P "$workers" -I{} bash -euo pipefail -c '{}'
{
    for seed in $seeds; do echo "score $seed"; done
    for seed in $audits; do echo "look $seed"; done
} | xargs -P "$workers" -I{} bash -euo pipefail -c '{}'
