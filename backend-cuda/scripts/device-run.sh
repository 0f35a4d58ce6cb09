#!/bin/bash
# Runs on a machine with a card, from the folder that device-pack.sh filled; builds nothing there. Sections are independent: one that
# fails or is missing something doesn't stop the others.
#
#   bash device-run.sh                what must hold: conformance, cases, comparisons, sanitizer, faults, limits, memory
#   bash device-run.sh SECTION...     only these; `times`, `bench`, `program`, `card` and `large` measure and run only when named, and
#                                     so does `opencl`, the suite on the same card by way of OpenCL
#
# A line for each section at the end and in $OUT/summary.txt; everything that was printed in $OUT/log.txt. LIMIT is the number of
# seconds after which no further section begins.
cd "$(dirname "$0")" || exit 2
export SPLITPROVER_KERNEL_CACHE=${SPLITPROVER_KERNEL_CACHE:-$PWD/cache}
export LD_LIBRARY_PATH=/usr/local/cuda/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export PATH=$PATH:/usr/local/cuda/bin
OUT=${OUT:-$PWD/out}
LIMIT=${LIMIT:-540}
work=$(mktemp -d)
mkdir -p "$SPLITPROVER_KERNEL_CACHE" "$OUT"
: > "$OUT/summary.txt"
: > "$OUT/log.txt"
cases=cases; [ -d $cases ] || cases=../../tests/cases

# section NAME SECONDS COMMAND...: runs a function or program, and says how it went.
section() {
    local name=$1 limit=$2 begin=$SECONDS code log=$work/$1.log
    shift 2
    [ $((LIMIT - begin)) -gt 5 ] || { echo "$name: NOT RUN, out of time" >> "$OUT/summary.txt"; return; }
    [ "$limit" -lt $((LIMIT - begin)) ] || limit=$((LIMIT - begin))
    export -f "$1" 2>/dev/null
    timeout "$limit" bash -c '"$@"' section "$@" > "$log" 2>&1
    code=$?
    local verdict="FAILED with exit code $code"
    [ $code != 0 ] || verdict="ok"
    [ $code != 124 ] || verdict="FAILED, stopped after $limit s"
    { flock 9
      { echo "== $name"; cat "$log"; echo "-- $name: $verdict, $((SECONDS - begin)) s"; } >> "$OUT/log.txt"
      echo "$name: $verdict, $((SECONDS - begin)) s: $(grep -v '^$' "$log" | tail -1 | cut -c1-200)" >> "$OUT/summary.txt"
    } 9> "$work/lock"
}

info() {
    nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm,clocks.max.sm --format=csv,noheader &&
        ./splitprover backends | tee "$work/backends" && grep -q "cuda).*self-test passed" "$work/backends"
}

# All families are in the cache for this card; what isn't is compiled here.
kernels() { ./device_check kernels "$SPLITPROVER_KERNEL_CACHE" "sm_$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1 | tr -d .)"; }

conform() { ./splitprover conform cuda; }

# Every case with fixed blinding: proof and public inputs byte for byte.
all_cases() {
    local right=0 wrong=0 folder blinding
    for folder in "$cases"/*/; do
        [ -f "$folder/proof_rs.json" ] || continue
        # Over another curve: refused, naming it, before any backend sees it.
        if [[ $folder == *x_bn128* ]]; then
            timeout 60 ./splitprover prove "$folder/circuit.zkey" "$folder/witness.wtns" "$work/proof.json" "$work/public.json" --backend cuda 2>&1 | grep -q BN254 ||
                { echo "$folder: not refused"; wrong=$((wrong + 1)); }
            continue
        fi
        blinding=$(tr -d ' "\n{}' < "$folder/rs.json" | sed 's/r:\([0-9]*\),s:\([0-9]*\)/\1,\2/')
        if timeout 60 ./splitprover prove "$folder/circuit.zkey" "$folder/witness.wtns" "$work/proof.json" "$work/public.json" --backend cuda --insecure-blinding "$blinding" 2> "$work/prove.log" &&
            cmp -s "$work/proof.json" "$folder/proof_rs.json" && cmp -s "$work/public.json" "$folder/public.json"; then
            right=$((right + 1))
        else
            echo "$(basename "$folder") differs: $(tail -1 "$work/prove.log")"; wrong=$((wrong + 1))
        fi
    done
    echo "$right proofs equal snarkjs's byte for byte, $wrong do not"
    [ $wrong = 0 ] && [ $right -gt 20 ]
}

# Keys made on the card, written, read, proved with and verified, all by the program.
setup() {
    ./splitprover setup --backend cuda --synthetic porep --log2 18 --seed 11 --witness "$work/w.wtns" "$work/gpu.zkey" &&
        ./splitprover setup --synthetic porep --log2 18 --seed 11 "$work/cpu.zkey" && cmp "$work/gpu.zkey" "$work/cpu.zkey" &&
        ./splitprover prove "$work/gpu.zkey" "$work/w.wtns" "$work/p.json" "$work/pub.json" --backend cuda --vram-limit 4GiB &&
        ./splitprover export-vk "$work/gpu.zkey" "$work/vk.json" && ./splitprover verify "$work/vk.json" "$work/pub.json" "$work/p.json" &&
        echo "the card's key is the CPU's byte for byte, and its proof verifies"
    local code=$?
    rm -f "$work"/*.zkey "$work/w.wtns"
    return $code
}

random_small() { ./splitprover conform cuda --against cpu --cases 400 --max-log2 12; }
random_large() { ./splitprover conform cuda --against cpu --cases 100 --max-log2 18; }
edges() { ./device_check prove 18 1; }
fixed_base() { ./device_check fixed-base; }
transforms() { ./device_check ntt 24; }
once() { ./device_check once "$@"; }
limited() { ./device_check limited "$@"; }

sanitizer() { # TOOL ARGUMENTS...
    command -v compute-sanitizer > /dev/null || { echo "no compute-sanitizer on this machine"; return 1; }
    local tool=$1; shift
    compute-sanitizer --tool "$tool" --error-exitcode 7 --print-limit 20 ./device_check "$@"
}
faults() { ./device_check faults; }
flat() { ./device_check flat 200; }
# Two proofs long enough to wait for one another on the card; each is verified.
overlap() { ./splitprover bench prove --backend cuda --log2 22 --evaluations --runs 2 --pair; }
export -f sanitizer limited once
export work OUT cases SPLITPROVER_KERNEL_CACHE

wanted=" $* "
want() { if [ "$wanted" = "  " ]; then [ "${2-}" = "" ]; else [[ $wanted == *" $1 "* ]]; fi; }
run() { if want "$1"; then section "$@"; fi; }

run info 30 info
run kernels 120 kernels
# Two lanes side by side: nothing in them measures time or free memory.
(
    run memcheck 150 sanitizer memcheck prove 5 1
    run racecheck 200 sanitizer racecheck prove 4 1
    run synccheck 100 sanitizer synccheck prove 4 1
    run faults 120 faults
) &
(
    run conform 180 conform
    run cases 60 all_cases
    run random-2^12 60 random_small
    run setup 60 setup
) &
wait
(
    run random-2^18 150 random_large
    run fixed-base 30 fixed_base
) &
(
    run edges-2^18 150 edges
    run transforms 60 transforms
) &
wait
run dense-2^22-in-3GiB 40 limited dense 22 3072
run dense-2^24-in-12GiB 90 limited dense 24 12288
run flat 40 flat
run overlap-2^22 60 overlap
run dense-2^20 40 once dense 20
run dense-2^22 60 once dense 22
run porep-2^24 120 once porep 24

# What measures runs alone, and only when named.
ntt_times() { for log2 in 20 24 27; do ./device_check ntt-once $log2 && NTT_FULL=1 ./device_check ntt-once $log2; done; }
bench() { ./device_check bench "$@"; }
measure() { if want "$1" measured; then shift; section "$@"; fi; }
measure times times 60 ntt_times
measure bench bench-porep-2^20 60 bench porep 20
measure bench bench-porep-2^20-copies 60 bench porep 20 0 32
measure bench bench-porep-2^22 60 bench porep 22
measure bench bench-porep-2^24 90 bench porep 24
measure bench bench-dense-2^22 60 bench dense 22
measure bench bench-mixed-2^24 90 bench mixed 24
program() { # the program's own benchmarks, with the limit each kernel is held against
    local b="./splitprover bench" card="--backend cuda"
    $b prove $card --log2 20,22,24 --evaluations --pair && $b prove $card --log2 24 --evaluations --pageable &&
        $b prove $card --log2 20,22,24 --option copies=12 && $b prove $card --synthetic dense --log2 20,22 &&
        $b prove $card --synthetic mixed --log2 24 && $b msm $card --log2 20,22,24,26 --option copies=12 &&
        $b msm $card --group g2 --log2 20,22,24 --option copies=12 && $b ntt $card --log2 20,24,27
}
card() { CARD_LOG2=${CARD_LOG2:-20,22,24} ./card --bench "$@"; }
measure program program 200 program
measure card card 200 card
measure large bench-porep-2^26 180 bench porep 26
measure large bench-porep-2^27 400 bench porep 27

# A machine made for CUDA may lack the vendor file by which OpenCL finds the card. Most of the suite's time goes to a proof of 2^20 rows for
# `ownership/retention`, and to the soak: smaller ones show the same faults, and `splitprover conform BACKEND` takes these options for any.
opencl() {
    OCL_ICD_FILENAMES=${OCL_ICD_FILENAMES-libnvidia-opencl.so.1} ./splitprover conform opencl --option platform=NVIDIA --retention-log2 18 --soak 40
}
measure opencl opencl 180 opencl

rm -rf "$work"
echo
cat "$OUT/summary.txt"
if grep -qE ': (FAILED|NOT RUN)' "$OUT/summary.txt"; then echo "device-run: SOMETHING FAILED"; exit 1; fi
echo "device-run: all right"
