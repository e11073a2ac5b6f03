#!/bin/sh
# The figures with four GPUs of one host, one rank a GPU. Every file gets a line with the command and the date.
# usage: benchmarks/4xGPU/run.sh OUTPUT_FOLDER [STEP...]
# Steps: doctor paper production house transfers attacks demo; without any: all, about 50 minutes. A stopped `paper`, `production`
# or `house` goes on where it was when it is run again with the same PKB_ARENA_HOME.
set -u
out=${1:?name a folder for the results}
shift
world=${WORLD:-4}
arena="python3 -m screens.main"
mkdir -p "$out"

# run FILE SECONDS COMMAND...: at most so long; output and errors go to the end of FILE.
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
    if [ -e "$out/$name.txt" ]; then set -- --resume; fi
    run "$name.txt" 580 $arena sweep --name "$name" "$@"
}

for step in ${*:-doctor paper production house transfers attacks demo}; do
    case $step in
    doctor)
        run doctor.txt 60 $arena calibrate --world "$world"
        run doctor.txt 60 $arena doctor ;;
    paper)  # identical code against itself, so all baselines, too
        sweep paper --preset paper --world "$world" --seconds 0.7 ;;
    production)
        sweep production --preset production --world "$world" --rounds 2 ;;
    house)
        sweep house --players house --one-size --seconds 0.5 --preset production --world "$world" ;;
    transfers)
        run transfers.txt 90 $arena transfers --world "$world"
        run collectives.txt 300 python3 -m benchmarks collectives --world "$world" --repetitions 5 ;;
    attacks)
        run attacks.txt 580 python3 -m benchmarks attacks --device cuda ;;
    demo)  # writes docs/pictures/demo-gpu-*.svg
        run demo.txt 780 python3 docs/pictures.py demo-gpu ;;
    *)
        echo "no step is called $step" >&2
        exit 2 ;;
    esac
done
