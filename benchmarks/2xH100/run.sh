#!/bin/sh
# What produced the files beside this one, on two H100 of one host. Takes 30 minutes.
# usage: benchmarks/2xH100/run.sh OUTPUT_FOLDER
set -u
out=${1:?name a folder for the results}
arena="python3 -m screens.main"
stop="timeout -s INT -k 20"
$stop 200 python3 -m pytest -q -m "gpu and peers and not long" tests/gpu --durations=12 --timeout 120 > "$out/peers.txt" 2>&1
$stop 320 $arena sweep --players house --one-size --seconds 0.7 --preset production --world 2 --name house 2> "$out/house-production.txt"
$stop 560 python3 -m benchmarks aa-gpu --repetitions 1 --preset paper --world 2 > "$out/aa-gpu.txt" 2>&1
$stop 90 python3 -m benchmarks aa-gpu 31 32 --repetitions 5 --preset paper --world 2 > "$out/aa-31-32.txt" 2>&1
$stop 90 python3 -m benchmarks kit-soak --repetitions 5 --world 2 > "$out/kit-soak.txt" 2>&1
$stop 110 python3 -m benchmarks clock 13 8 31 46 --preset paper --world 2 > "$out/clock.txt" 2>&1
# fresh-inputs.txt has the first rank's lines of this:
$stop 100 python3 -m torch.distributed.run --nproc-per-node 2 benchmarks/2xH100/fresh_inputs.py "$out" 32 31 49 13
# aa-shapes.txt, aa-77.txt, aa-some.txt, profile-peers.txt, house-late.txt: the day after (BENCHMARKS.md names the commits).
$stop 260 python3 -m benchmarks aa-gpu 31 32 50 81 --repetitions 3 --preset paper --world 2 > "$out/aa-shapes.txt" 2>&1
$stop 80 python3 -m benchmarks aa-gpu 77 --repetitions 2 --preset paper --world 2 > "$out/aa-77.txt" 2>&1
$stop 90 python3 -m pytest -q -m "gpu and peers" tests/gpu/test_profile.py --timeout 80 > "$out/profile-peers.txt" 2>&1
$stop 90 $arena sweep 83 84 85 --players house --one-size --seconds 0.7 --preset production --world 2 --name late 2> "$out/house-late.txt"
$stop 110 python3 -m benchmarks aa-gpu 1 8 13 46 83 --repetitions 2 --preset paper --world 2 > "$out/aa-some.txt" 2>&1
# attacks-ahead.txt, house-training.txt, aa-again.txt: commit f9365d6. The first is run three times, with other names.
attacks=tests/attacks/kernels
players=file:$attacks/t18_all_in_the_first_call.py,file:$attacks/t18_all_but_in_some_sizes.py
players=$players,file:$attacks/t18_stages_a_whole_batch.py,file:$attacks/honest.py
$stop 100 $arena sweep 1 --players "$players" --one-size --seconds 0.7 --preset paper --world 2 --name a1 > "$out/attacks-ahead.txt" 2>&1
scalars=file:$attacks/t21_scalars_before_go.py,file:$attacks/honest_scalars.py,baseline
$stop 40 $arena sweep 23 --players $scalars --one-size --seconds 0.7 --preset paper --world 2 --name s1 >> "$out/attacks-ahead.txt" 2>&1
$stop 200 $arena sweep 52 53 44 12 14 16 15 11 43 40 41 42 47 2 8 34 36 --players house --one-size --seconds 0.7 --preset production --world 2 --name house > "$out/house-training.txt" 2>&1
$stop 150 python3 -m benchmarks aa-gpu 2 3 7 13 17 23 30 33 46 58 73 86 --repetitions 1 --preset paper --world 2 > "$out/aa-again.txt" 2>&1
# house-all.txt, attacks-three-times.txt, kit-soak-new.txt: the same day, commits in the files. house-all.txt is the table of these and
# the sweep above, by `python -m benchmarks results`; the first two stopped at their limits.
for ids in 10,19,20,26,28,29,31,32,48-51,54-56,63,64 28,54,57,61-63,66-68,70,72,74-77,79,80,87 26-28,46,53,54,57,61-64,68,74,75,80,84; do
    $stop 290 $arena sweep --problems "$ids" --players house --one-size --seconds 0.7 --preset production --world 2 > "$out/house-$ids.txt" 2>&1
done
$stop 170 python3 -m benchmarks attacks --device cuda --repetitions 3 --only T18 --only T20 --only T21 --only T23 --only T25 --only T27 --only T28 > "$out/attacks-three-times.txt" 2>&1
$stop 75 python3 -m benchmarks kit-soak summed attended routed cut passed_on recurred --repetitions 5 --world 2 > "$out/kit-soak-new.txt" 2>&1
beside=benchmarks/kernels/allreduce_one_shot_symm.py,file:benchmarks/kernels/allreduce_two_shot_symm.py
$stop 60 $arena sweep 1 --players "house,file:$beside" --one-size --seconds 0.7 --preset paper --world 2 >> "$out/house-all.txt" 2>&1
# host-time.txt, house-paper.txt: a first form of this, and sweeps of two commits in one lease (named in the files).
$stop 60 python3 -m torch.distributed.run --nproc-per-node 2 benchmarks/2xH100/host_time.py 1 2 4 7 13 16 25 1:benchmarks/kernels/allreduce_one_shot_symm.py > "$out/host-time.txt" 2>&1
# aa-paper.txt, house-again.txt: the same day, later; commits in the files.
$stop 570 $arena sweep --preset paper --world 2 --seconds 0.7 --name aa > "$out/aa-paper.txt" 2>&1
for ids in 80,22,76,1,44,31,66 80,83,1; do
    $stop 150 $arena sweep --problems "$ids" --players house --one-size --seconds 0.7 --preset production --world 2 > "$out/house-again-$ids.txt" 2>&1
done
# The rest: commit 24663044 with the commands of the commit after it. transfers-60.txt, -100 and -160 are the table and the plot of
# transfers.json at these widths. ncu-houses.txt has the text of a test of tests/gpu/test_profile.py, too.
$stop 70 $arena transfers --world 2 --json > "$out/transfers.json"
$stop 215 python3 -m benchmarks backends --world 2 > "$out/backends.txt" 2>&1
$stop 130 python3 -m benchmarks save-gpu --repetitions 3 > "$out/save-gpu.txt" 2>&1
for id in 54 61; do $stop 45 $arena profile $id house --ncu --world 1; done > "$out/ncu-houses.txt" 2>&1
$stop 30 $arena run 1 sandbox/kit/examples/allreduce_shmem.py --world 1 > "$out/other-sizes.txt" 2>&1
$stop 45 $arena run 44 house --other-sizes --world 2 >> "$out/other-sizes.txt" 2>&1
only=$(for id in 1 2 3 4 5 6 7 14 16 18 21 22 23 24 26; do printf -- '--only H%s ' $id; done)
$stop 130 python3 -m benchmarks attacks --device cuda --backend shmem $only > "$out/attacks-shmem.txt" 2>&1
$stop 600 python3 -m pytest -q --durations=15 --timeout 60 tests/gpu/test_kernel_folder.py tests/gpu/test_nccl.py tests/gpu/test_shmem.py tests/gpu/test_kittens.py tests/gpu/test_transfers.py > "$out/backend-tests.txt" 2>&1
# attacks-t18-t29.txt, aa-13.txt, house-sweep.txt: 2026-11-26, commits and commands in the files.
$stop 230 python3 -m benchmarks attacks --device cuda --repetitions 3 --only T18 --only T29 > "$out/attacks-t18-t29.txt" 2>&1
$stop 560 $arena sweep --players house --one-size --seconds 0.5 --preset production --world 2 --name whole > "$out/house-sweep.txt" 2>&1
$stop 420 $arena sweep --resume --name whole >> "$out/house-sweep.txt" 2>&1
$stop 150 $arena sweep --problems 40-43,78,80-87 --preset paper --world 2 --seconds 0.7 --name aa13 > "$out/aa-13.txt" 2>&1
# house-sweep.txt (again), attacks-again.txt: the same day, later; commits and commands in the files.
$stop 118 python3 -m benchmarks attacks --device cuda --repetitions 3 --only T18 --only T29 --only T21 > "$out/attacks-again.txt" 2>&1
