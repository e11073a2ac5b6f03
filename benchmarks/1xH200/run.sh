#!/bin/sh
# What produced the files beside this one, on one H200. Takes eight minutes.
# usage: benchmarks/1xH200/run.sh OUTPUT_FOLDER
set -u
out=${1:?name a folder for the results}
timeout -s INT 290 python3 -m pytest -q -m "gpu and not long" tests/gpu --durations=12 --timeout 120 > "$out/tests.txt"
timeout -s INT 170 python3 -m benchmarks clock 13 31 82 17 46 54 60 64 --preset paper --world 1 > "$out/clock.txt"
timeout 110 python3 benchmarks/1xH200/transients_script.txt "$(mktemp -d)" 13 17 82 31 > "$out/transients.txt"  # with this folder on PYTHONPATH
# On another such machine, in two parts of seven and five minutes:
timeout -s INT 230 python3 -m screens.main sweep --players house --one-size --seconds 1.5 --preset paper --world 1 2> "$out/house.txt"
timeout -s INT 300 python3 -m benchmarks aa-gpu --repetitions 1 --preset paper --world 1 > "$out/aa-gpu-1-54.txt"
timeout -s INT 110 python3 -m benchmarks kit-soak --repetitions 20 > "$out/kit-soak.txt"
timeout -s INT 170 python3 -m benchmarks aa-gpu --repetitions 1 --preset paper --world 1 $(seq 55 87) > "$out/aa-gpu-55-83.txt"
OUT=$out bash benchmarks/1xH200/profile.sh
timeout -s INT 60 python3 -m screens.main sweep --players house --one-size --seconds 1 --preset paper --world 1 --problems 58-60,86 2>> "$out/house.txt"
