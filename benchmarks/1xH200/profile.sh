#!/bin/bash
# First contact of the GPU profile with a GPU: three kernels through the command line. Run in the repository's root.
#   OUT: folder for traces and texts (default ./profile-out). Prints everything that could explain a failure.
set -u
OUT=${OUT:-$PWD/profile-out}; mkdir -p "$OUT"
export PYTHONPATH=$PWD PKB_ARENA_HOME=${PKB_ARENA_HOME:-$(mktemp -d)}
W=$(mktemp -d)
echo "== machine"; date; nvidia-smi -L; nvidia-smi --query-gpu=driver_version,compute_mode,mig.mode.current --format=csv
python3 -P - <<'P'
import sys, ctypes, ctypes.util, pathlib
import torch
print("python", sys.version.split()[0], "torch", torch.__version__, "cuda", torch.version.cuda, torch.cuda.device_count())
from torch._C._autograd import _KinetoEvent
from torch.autograd import _supported_activities
print("activities", _supported_activities())
need = ("start_ns", "duration_ns", "name", "start_thread_id", "device_type", "device_resource_id", "correlation_id")
print("kineto event lacks", [n for n in need if not hasattr(_KinetoEvent, n)])
print("cupti mapped:", sorted({l.split()[-1] for l in open("/proc/self/maps") if "cupti" in l}) or "none")
print("RmProfilingAdminOnly:", [l.strip() for l in open("/proc/driver/nvidia/params") if "Profiling" in l] if pathlib.Path("/proc/driver/nvidia/params").exists() else "no params file")
try:
    import pynvml; print("pynvml", pynvml.__file__, getattr(pynvml, "__version__", ""))
except ImportError as e: print("no pynvml:", e)
P
echo "== counters from outside, of a matmul loop in this process"
timeout 60 python3 -P - <<'P'
import time, torch
from sandbox.machine.gpu_counters import GpuCounters
from sandbox.machine import nvml
try:
    gpus = nvml.gpus()[:torch.cuda.device_count()]; c = GpuCounters(gpus)
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16); a @ a; torch.cuda.synchronize()
    t = time.monotonic(); c.begin(); print("begin ms", (time.monotonic() - t) * 1e3)
    for _ in range(200): a @ a
    torch.cuda.synchronize(); t = time.monotonic(); r = c.end(); print("end ms", (time.monotonic() - t) * 1e3)
    for x in r: print(x)
except nvml.NvmlMissing as e: print("NVML:", e)
P
echo "== kineto without walls, for comparison"
timeout 60 python3 -P - <<'P'
import time, torch
from torch.autograd.profiler import profile, record_function
from sandbox.rank.profiling.spans import CALL, DRAIN, gpu_spans, recorded
x = torch.ones(1024, 1024, device="cuda"); torch.cuda.synchronize()
t = time.monotonic(); p = profile(use_kineto=True, use_device="cuda"); p.__enter__(); print("start s", round(time.monotonic() - t, 2))
for _ in range(2):
    with record_function(CALL):
        y = x * 2; y.sum().item()
    with record_function(DRAIN): torch.cuda.synchronize()
t = time.monotonic(); p.__exit__(None, None, None); print("stop s", round(time.monotonic() - t, 2))
for e in p.kineto_results.events():
    print(e.device_type(), e.start_ns(), e.duration_ns(), e.start_thread_id(), e.device_resource_id(), e.correlation_id(), e.name()[:70])
s, left, off = gpu_spans(recorded(p.kineto_results.events()), time.time_ns())
print("left out", left, "clock off us", off)
for each in s: print(each)
P
cat > $W/launches.py <<'K'
import torch
def solution(tensor):
    out = tensor.clone()
    for _ in range(200):
        out.add_(1.0)
    return out
K
cat > $W/syncs.py <<'K'
import torch
def solution(tensor):
    out = tensor.clone()
    for _ in range(10):
        out.add_(1.0)
        if float(out[0, 0]) == 12345.0:
            out.zero_()
        torch.cuda.synchronize()
    return out
K
cat > $W/copies.py <<'K'
import torch
def solution(tensor):
    for _ in range(10):
        tensor = tensor.clone()
    return tensor
K
one() {  # name, more options
    name=$1; shift
    echo; echo "== $name $*"; s=$(date +%s.%N)
    timeout 60 python3 -P -m screens.main profile 1 "$W/$name.py" --world "${WORLD:-1}" --device cuda "$@" --trace "$OUT/$name.json" 2>&1 | tee "$OUT/$name.txt"
    echo "rc ${PIPESTATUS[0]}, $(python3 -c "import time; print(round(time.time() - $s, 1))") s"
    ls -l "$OUT/$name.json" 2>&1
    [ -f "$OUT/$name.json" ] && python3 -P - "$OUT/$name.json" <<'P'
import json, sys, collections
e = json.load(open(sys.argv[1]))["traceEvents"]; print(collections.Counter(x.get("cat") for x in e if x["ph"] == "X"))
print([x["args"]["name"] for x in e if x["name"] == "thread_name"])
P
}
one launches --preset tiny
one syncs --preset tiny
one copies --preset production
echo; echo "== copies as JSON"
timeout 60 python3 -P -m screens.main profile 1 "$W/copies.py" --world "${WORLD:-1}" --device cuda --preset production --json > "$OUT/copies-figures.json" 2>"$OUT/copies-json.err"; echo "rc $?"; head -c 3000 "$OUT/copies-figures.json"; tail -5 "$OUT/copies-json.err"
