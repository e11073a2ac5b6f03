#!/bin/sh
# The figures that need GPUs, one rank a GPU. A file gets a line with the date and the command, and what the command prints.
# usage: WORLD=2 benchmarks/gpu_figures.sh OUTPUT_FOLDER STEP...
#
#   doctor      peaks of this machine, which bounds need: first                        1 minute
#   paper       all baselines against themselves, at `paper`                          11 minutes on two H100
#   production  all baselines, at `production`                                          3 minutes
#   house       all house kernels, at `production`                                     14 minutes
#   new         house kernels of parallel GEMM to spatial beside their baselines' graphs, at `production` and `paper`
#   legal       correctness of these at tiny, paper and three more settings each, in two dtypes
#   soak        the kit's newer blocks, 50,000 calls each                                4 minutes
#   precision   pairs, duty and half widths after seconds of timing, at `production` and `paper`     8 minutes
#   clock       the judge's times of some baselines beside a plain loop's: short calls, and outputs of changing shapes   7 minutes
#   save        from a save to its verdicts, three times                                 2 minutes
#   transfers   ways between two GPUs, and collectives against NCCL, 2 KB to 256 MB      6 minutes
#   attacks     the attacks of SECURITY.md                                               5 minutes
#   demo        live duels for ten minutes, and docs/pictures/demo-gpu-*.svg
#   table       one table of all sweeps
#
# A step that was stopped goes on where it was when it is run again with the same OUTPUT_FOLDER and PKB_ARENA_HOME. SWEEP_SECONDS ends a
# sweep sooner or later than after 580 seconds.
set -u
out=${1:?name a folder for the results}
shift
world=${WORLD:-4}
arena="python3 -m screens.main"
training=10-12,14-16,19,20,26,28,29,31,32,40-42,44,47-53
attention=54-57,61-64,66-68,70,72,74-77,79,80,87
mkdir -p "$out"
home=${PKB_ARENA_HOME:-$out/home}
export PKB_ARENA_HOME="$home"

# run FILE SECONDS COMMAND...: for so long at most.
run() {
    file=$out/$1 limit=$2
    shift 2
    echo "# $(date -u +%F) $*" >> "$file"
    timeout -s INT -k 20 "$limit" "$@" >> "$file" 2>&1
}

# sweep NAME OPTIONS...: begins the sweep of this name, or continues it.
sweep() {
    name=$1
    shift
    if [ -e "$home/data/sweeps/$name.jsonl" ]; then set -- --resume; fi
    run "$name.txt" "${SWEEP_SECONDS:-580}" $arena sweep --name "$name" "$@"
}

# judged NAME PRESET OPTIONS...: the same way for every result.
judged() {
    name=$1 preset=$2
    shift 2
    sweep "$name" --one-size --seconds 0.5 --preset "$preset" --world "$world" "$@"
}

for step in ${*:?name steps}; do
    case $step in
    doctor)
        run doctor.txt 60 $arena calibrate --world "$world"
        run doctor.txt 60 $arena doctor ;;
    paper) sweep paper --preset paper --world "$world" --seconds 0.7 ;;
    production) sweep production --preset production --world "$world" --rounds 2 ;;
    house) judged house production --players house ;;
    new)
        judged attention production --players house,baseline-graph --problems $attention
        judged training production --players house,baseline-graph --problems $training
        judged paper-new paper --players house,baseline-graph --problems $training,$attention ;;
    legal)
        for preset in tiny paper; do for dtype in bfloat16 float32; do
            sweep "legal-$preset-$dtype" --players house --problems $training,$attention --preset $preset --dtype $dtype \
                --rounds 0 --world "$world"
        done; done ;;
    soak)
        run kit-soak-new.txt 400 python3 -m benchmarks kit-soak exchanged_rows summed routed cut recurred passed_on attended \
            --repetitions 50 --world "$world" ;;
    precision)
        for preset in production paper; do
            run precision.txt 300 python3 -m benchmarks precision --device cuda --preset $preset --world "$world"
        done ;;
    clock) run clock.txt 420 python3 -m benchmarks clock 13 8 61 63 31 --preset paper --world 1 --repetitions 2 ;;
    save) run save-gpu.txt 180 python3 -m benchmarks save-gpu --repetitions 3 ;;
    transfers)
        run transfers.txt 90 $arena transfers --world "$world"
        run collectives.txt 300 python3 -m benchmarks collectives --world "$world" --repetitions 5 ;;
    attacks) run attacks.txt 580 python3 -m benchmarks attacks --device cuda ;;
    demo) run demo.txt 780 python3 docs/pictures.py demo-gpu ;;
    table) COLUMNS=200 run table.txt 60 python3 -m benchmarks results "$home"/data/sweeps/*.jsonl ;;
    *) echo "no step is called $step" >&2 && exit 2 ;;
    esac
done
