#!/bin/bash
# Runs on a machine with a card, from the folder that device-pack.sh filled. Names of sections as arguments choose what runs; without
# any, all of it does: about ten minutes on an H200. A line per step with its exit code; logs in $OUT if that is set.
cd "$(dirname "$0")" || exit 2
export SPLITPROVER_KERNEL_CACHE=${SPLITPROVER_KERNEL_CACHE:-$PWD/cache}
export LD_LIBRARY_PATH=/usr/local/cuda/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
mkdir -p "$SPLITPROVER_KERNEL_CACHE"
failed=0
plugin=$PWD/libsplitprover_backend_cuda.so
cases=cases; [ -d $cases ] || cases=../../tests/cases

step() { # seconds command...
    local limit=$1 begin=$SECONDS; shift
    echo "== $*"
    timeout "$limit" "$@" 2>&1 | tail -"${TAIL:-30}"
    local code=${PIPESTATUS[0]}
    echo "-- exit $code after $((SECONDS - begin)) s"
    [ "$code" = 0 ] || failed=1
}

wanted=" $* "
want() { [ "$wanted" = "  " ] || [[ $wanted == *" $1 "* ]]; }

if want kernels; then step 120 ./device_check kernels "$SPLITPROVER_KERNEL_CACHE" "sm_$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1 | tr -d .)"; fi
if want info; then step 20 nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm,clocks.max.sm --format=csv; step 30 ./splitprover backends; fi
if want cases; then
    right=0
    for folder in "$cases"/*/; do
        [ -f "$folder/proof_rs.json" ] || continue
        # Over another curve: must be refused, naming it, before any backend sees it.
        if [[ $folder == *x_bn128* ]]; then
            timeout 60 ./splitprover prove "$folder/circuit.zkey" "$folder/witness.wtns" /tmp/proof.json /tmp/public.json --backend "$plugin" 2>&1 | grep -q BN254 || failed=1
            continue
        fi
        blinding=$(tr -d ' "\n{}' < "$folder/rs.json" | sed 's/r:\([0-9]*\),s:\([0-9]*\)/\1,\2/')
        if timeout 60 ./splitprover prove "$folder/circuit.zkey" "$folder/witness.wtns" /tmp/proof.json /tmp/public.json --backend "$plugin" --insecure-blinding "$blinding" 2> /tmp/prove.log &&
            cmp -s /tmp/proof.json "$folder/proof_rs.json" && cmp -s /tmp/public.json "$folder/public.json"; then
            right=$((right + 1))
        else
            echo "case $(basename "$folder") differs: $(tail -1 /tmp/prove.log)"; failed=1
        fi
    done
    echo "== cases: $right proofs equal snarkjs's byte for byte"
fi
if want ntt; then step 120 ./device_check ntt 24; fi
if want fixed-base; then step 60 ./device_check fixed-base; fi
if want prove; then step 180 ./device_check prove "${MAX_LOG2:-16}" "${ROUNDS:-2}"; fi
if want faults; then step 60 ./device_check faults; fi
if want flat; then step 60 ./device_check flat 200; fi
if want limited; then step 120 ./device_check limited dense 22 3072; step 180 ./device_check limited dense 24 12288; fi
if want conform; then TAIL=90 step 400 ./splitprover conform "$plugin" --max-log2 "${CONFORM_LOG2:-10}"; fi
if want sanitizer; then
    step 120 compute-sanitizer --tool memcheck --error-exitcode 1 ./device_check prove 5 1
    step 180 compute-sanitizer --tool racecheck --error-exitcode 1 ./device_check prove 4 1
fi
if want times; then for log2 in 24 27; do step 60 ./device_check ntt-once $log2; NTT_FULL=1 step 60 ./device_check ntt-once $log2; done; fi
if want bench; then
    step 60 ./device_check bench porep 20
    step 60 ./device_check bench porep 20 0 32
    step 60 ./device_check bench porep 22
    step 90 ./device_check bench porep 24
    step 60 ./device_check bench dense 22
    step 90 ./device_check bench mixed 24
fi
if want large; then step 180 ./device_check bench porep 26; step 400 ./device_check bench porep 27; fi
echo "device-run: $([ $failed = 0 ] && echo all right || echo SOMETHING FAILED)"
exit $failed
