#!/bin/sh
# What produced the files beside this one: two arenas side by side on 4 H200 of one host, two GPUs each. Takes eight minutes.
# usage: benchmarks/4xH200-in-pairs/run.sh OUTPUT_FOLDER
set -u
out=${1:?name a folder for the results}
pair="--world 2 --preset paper"
problems="8 13 27 46 54 31 82 1 17 43 49 64 73 69"
(
  export CUDA_VISIBLE_DEVICES=0,1 PKB_ARENA_HOME=$(mktemp -d)
  timeout -s INT 440 python3 -m benchmarks aa-gpu --repetitions 1 $pair > "$out/aa-gpu.txt"
) &
(
  export CUDA_VISIBLE_DEVICES=2,3 PKB_ARENA_HOME=$(mktemp -d)
  timeout -s INT 316 python3 -m benchmarks clock $problems $pair > "$out/clock.txt"
  timeout -s INT 110 python3 -m benchmarks ab 13 54 --repetitions 2 $pair > "$out/ab.txt"
) &
wait
