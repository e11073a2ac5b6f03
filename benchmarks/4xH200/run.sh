#!/bin/sh
# What produced the files beside this one: 4 H200 of one host, one rank a GPU. Takes about fifteen minutes.
# usage: benchmarks/4xH200/run.sh OUTPUT_FOLDER
set -u
out=${1:?name a folder for the results}
world="--device cuda --world 4"
arena="python3 -m arena.cli"
eight="1 1 1 1 1 1 1 1"
null="$eight $(echo "$eight" | sed s/1/13/g) $(echo "$eight" | sed s/1/54/g) $(echo "$eight" | sed s/1/60/g) $(echo "$eight" | sed s/1/31/g)"
timeout 60 $arena doctor --json > "$out/doctor.json"
timeout 60 $arena calibrate $world --json > "$out/calibration.json"
timeout 300 $arena sweep --rounds 5 $world --preset production --json > "$out/production.json"
timeout 200 $arena sweep --rounds 3 $world --preset paper --json > "$out/paper.json"
timeout 150 $arena sweep $null --rounds 15 $world --preset production --json > "$out/null.json"
timeout 90 $arena doctor --bench save-gpu --repetitions 7 > "$out/save.txt"
timeout 300 $arena doctor --bench collectives 1 13 8 2 7 --world 4 --repetitions 5 > "$out/collectives.txt"
