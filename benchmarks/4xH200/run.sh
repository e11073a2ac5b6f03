#!/bin/sh
# What produced the files beside this one: 4 H200 of one host, one rank a GPU. Takes about ten minutes.
# usage: benchmarks/4xH200/run.sh OUTPUT_FOLDER
set -u
out=${1:?name a folder for the results}
world="--device cuda --world 4"
timeout 60 python3 -m arena.cli calibrate $world --json > "$out/calibration.json"
timeout 120 python3 -m arena.cli sweep 1 13 31 54 60 1 13 --rounds 31 $world --preset production --json > "$out/null.json"
timeout 400 python3 -m arena.cli sweep --rounds 5 $world --preset production --json > "$out/production.json"
timeout 600 python3 -m arena.cli sweep --rounds 5 $world --preset paper --json > "$out/paper.json"
