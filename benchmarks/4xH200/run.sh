#!/bin/sh
# What produced the files beside this one: 4 H200 of one host, one rank a GPU. Takes about twenty-five minutes.
# usage: benchmarks/4xH200/run.sh OUTPUT_FOLDER
# (rest.json and rest.txt compare states of the code that are no longer there: BENCHMARKS.md says which.)
set -u
out=${1:?name a folder for the results}
world="--device cuda --world 4"
arena="python3 -m arena.cli"
timeout 60 $arena doctor --json > "$out/doctor.json"
timeout 60 $arena calibrate $world --json > "$out/calibration.json"
timeout 300 $arena sweep --rounds 5 $world --preset production --json > "$out/production.json"
timeout 200 $arena sweep --rounds 5 $world --preset paper --json > "$out/paper.json"
timeout 590 python3 -m benchmarks aa-gpu --world 4 --json > "$out/null.json"
timeout 90 python3 -m benchmarks save-gpu --repetitions 7 > "$out/save.txt"
for problem in 1 2 3 4 5 6 7 8 13; do
  timeout 40 $arena run $problem house $world --preset production --rounds 5 --json
done > "$out/house.json"
timeout 300 python3 -m benchmarks collectives 1 13 8 2 7 --world 4 --repetitions 5 > "$out/collectives.txt"
# On two of the four, as in ../2xH200, while the GPU tests run on the others:
CUDA_VISIBLE_DEVICES=0,1 timeout 330 python3 -m benchmarks collectives --world 2 --repetitions 5 > "$out/two.txt" &
CUDA_VISIBLE_DEVICES=2,3 PKB_ARENA_HOME=$(mktemp -d) timeout 450 python3 -m pytest -m gpu tests/gpu -q > "$out/tests.txt" 2>&1
wait
