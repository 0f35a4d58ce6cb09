#!/bin/sh
# Builds what a machine with a card needs and packs it into .device/cuda, which git ignores: the program, the plug-in and OpenCL's, the
# device check, the real cases, and kernels for the architectures named (sm_90 without names) where NVRTC is here. Nothing is built there.
#
#   backend-cuda/scripts/device-pack.sh [ARCH...]      then, on the other machine: bash .device/cuda/device-run.sh
set -eu
cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-target}
pack=.device/cuda
cargo build --release --locked -p splitprover-harness -p splitprover-backend-cuda-plugin -p splitprover-backend-cuda \
    --lib --bins --example device_check
cargo build --release --locked -p splitprover-backend-opencl-plugin
# Criterion's binary has a hash in its name; the newest is the one just built.
cargo bench --locked -p splitprover-backend-cuda --bench card --no-run
card=$(ls -t "$target"/release/deps/card-* | grep -v '\.d$' | head -1)
rm -rf "$pack"
mkdir -p "$pack/cache"
for file in splitprover splitprover-kernels libsplitprover_backend_cuda.so libsplitprover_backend_opencl.so examples/device_check; do
    strip -o "$pack/$(basename "$file")" "$target/release/$file"
done
strip -o "$pack/card" "$card"
chmod +x "$pack"/*
cp backend-cuda/scripts/device-run.sh "$pack/"
cp -r tests/cases "$pack/cases"
[ $# -gt 0 ] || set -- sm_90
for arch in "$@"; do
    "$pack/splitprover-kernels" --arch "$arch" --out "$pack/cache" ||
        echo "no kernels for $arch: they will be compiled where they run"
done
for file in splitprover libsplitprover_backend_cuda.so device_check device-run.sh cases/mul2/circuit.zkey; do
    [ -s "$pack/$file" ] || { echo "$pack/$file is missing"; exit 1; }
done
ls -l "$pack" "$pack/cache"
du -sh "$pack"
