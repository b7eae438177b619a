#!/usr/bin/env bash
# The GPU's part of bench/run.sh: builds heddle-gpu-bench, puts it with every library it needs (the C library and its loader, and
# NVRTC where it is found) into build/heddle-cuda-bench, and runs it from there. That folder runs on any x86-64 Linux with an NVIDIA
# GPU and its driver, without this repository or its packages; cuBLAS and cuDNN are compared with where that machine has them.
# Usage: bench/run.sh cuda [--bundle-only] [--minutes 7] [--only C2,1024x1024x1024] [--json FILE] [--device cuda:0]
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
bundle="$root/build/heddle-cuda-bench"
only_bundle=false
arguments=()
for argument in "$@"; do
  if [ "$argument" = --bundle-only ]; then only_bundle=true; else arguments+=("$argument"); fi
done

"$root/deploy/build.sh" heddle-gpu-bench >&2
binary="$root/build/release/bin/heddle-gpu-bench"
rm -rf "$bundle"
mkdir -p "$bundle/bin" "$bundle/lib"
cp "$binary" "$bundle/bin/"
loader=$(ldd "$binary" | awk '/ld-linux/ {print $1}')
cp -L "$loader" "$bundle/lib/ld.so"
ldd "$binary" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | while read -r library; do cp -L "$library" "$bundle/lib/"; done
# dlopen asks for these when a host's library wants them.
for library in libdl.so.2 librt.so.1 libpthread.so.0; do
  [ -e "$bundle/lib/$library" ] || cp -L "$(dirname "$(ldd "$binary" | awk '/libc\.so/ {print $3}')")/$library" "$bundle/lib/"
done
# Where the compiler looks for NVRTC, too (compiler/codegen/nvrtc.h).
nvrtc=""
for folder in "${CUDA_HOME:-}/lib64" /usr/local/cuda/lib64; do
  [ -n "$nvrtc" ] || nvrtc=$(find -L "$folder" -maxdepth 1 -name 'libnvrtc.so.[0-9]*' 2>/dev/null | sort -V | tail -n 1)
done
if [ -n "$nvrtc" ]; then
  cp -L "$nvrtc" "$bundle/lib/"
  find "$(dirname "$nvrtc")" -maxdepth 1 -name 'libnvrtc-builtins.so.*' -exec cp -L {} "$bundle/lib/" \;
else
  echo "bench/run.sh cuda: no NVRTC here to put into $bundle: the machine with the GPU has to have it" >&2
fi
cat >"$bundle/run.sh" <<'WRAPPER'
#!/bin/sh
# Runs the benchmark with the libraries beside it. Arguments: bin/heddle-gpu-bench --help
here=$(cd "$(dirname "$0")" && pwd)
for nvrtc in "$here"/lib/libnvrtc.so.*; do
  if [ -e "$nvrtc" ] && [ -z "${HEDDLE_NVRTC:-}" ]; then export HEDDLE_NVRTC="$nvrtc"; fi
done
exec "$here/lib/ld.so" --library-path "$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$here/bin/heddle-gpu-bench" "$@"
WRAPPER
chmod +x "$bundle/run.sh"
echo "bench/run.sh cuda: $(du -sh "$bundle" | cut -f1) in $bundle; its run.sh runs on any machine with an NVIDIA GPU" >&2
if "$only_bundle"; then exit 0; fi
exec "$bundle/run.sh" ${arguments[@]+"${arguments[@]}"}
