#!/bin/sh
# Builds what a machine with a card needs and packs it into .device/cuda, which git ignores: the program, the plug-in, the device
# check, the real cases, and kernels for the architectures named (sm_90 without names) where NVRTC is here. Nothing is built there.
#
#   backend-cuda/scripts/device-pack.sh [ARCH...]      then, on the other machine: sh .device/cuda/device-run.sh
set -eu
cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-target}
cargo build --release -p splitprover-harness --bins
cargo build --release -p splitprover-backend-cuda-plugin -p splitprover-backend-cuda --lib --bins --example device_check
rm -rf .device/cuda
mkdir -p .device/cuda/cache
for file in splitprover splitprover-kernels libsplitprover_backend_cuda.so examples/device_check; do
    strip -o ".device/cuda/$(basename "$file")" "$target/release/$file"
done
chmod +x .device/cuda/*
cp backend-cuda/scripts/device-run.sh .device/cuda/
cp -r tests/cases .device/cuda/cases
[ $# -gt 0 ] || set -- sm_90
for arch in "$@"; do
    .device/cuda/splitprover-kernels --arch "$arch" --out .device/cuda/cache --check ||
        echo "no kernels for $arch: they will be compiled where they run"
done
du -sh .device/cuda
