#!/usr/bin/env bash
# The GPU part of bench/run.sh. Builds heddle-gpu-bench, copies it with every library it needs (the C library, its loader, and
# NVRTC if it is found) into build/heddle-cuda-bench, and runs it from there. That folder runs on any x86-64 Linux with an NVIDIA
# GPU and its driver, without this repository or its packages. cuBLAS and cuDNN are measured if that machine has them.
# Usage: bench/run.sh cuda [--bundle-only] [--minutes 7] [--only C2,1024x1024x1024] [--json heddle-cuda.json] [--device cuda:0]
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
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
# Libraries of the host that are loaded later may need these.
for library in libdl.so.2 librt.so.1 libpthread.so.0; do
  [ -e "$bundle/lib/$library" ] || cp -L "$(dirname "$(ldd "$binary" | awk '/libc\.so/ {print $3}')")/$library" "$bundle/lib/"
done
# The folders in which the compiler looks for NVRTC (compiler/codegen/cuda/nvrtc.h). The first library of each CUDA version is
# copied; at run time the newest one whose code the driver loads is used.
IFS=: read -ra folders <<<"${LD_LIBRARY_PATH:-}:${CUDA_HOME:+$CUDA_HOME/lib64:}/usr/local/cuda/lib64"
if [ -n "${VIRTUAL_ENV:-}" ]; then folders+=("$VIRTUAL_ENV"/lib/python3*/site-packages/nvidia/*/lib); fi
bundle_nvrtc() {  # FILE NAME
  cp -L "$1" "$bundle/lib/$2"
  find -L "$(dirname "$1")" -maxdepth 1 -name 'libnvrtc-builtins.so.*' -exec cp -L {} "$bundle/lib/" \;
}
if [ -n "${HEDDLE_NVRTC:-}" ]; then
  bundle_nvrtc "$HEDDLE_NVRTC" libnvrtc.so
else
  for name in libnvrtc.so.13 libnvrtc.so.12; do
    for folder in "${folders[@]}"; do
      if [ -n "$folder" ] && [ -e "$folder/$name" ] && [ ! -e "$bundle/lib/$name" ]; then bundle_nvrtc "$folder/$name" "$name"; fi
    done
  done
fi
if ! compgen -G "$bundle/lib/libnvrtc.so*" >/dev/null; then
  echo "bench/run.sh cuda: found no NVRTC to copy into $bundle; the machine with the GPU must have it" >&2
fi
cat >"$bundle/run.sh" <<'WRAPPER'
#!/bin/sh
# Runs the benchmark with the libraries of this folder. For its arguments: --help
here=$(cd "$(dirname "$0")" && pwd)
exec "$here/lib/ld.so" --library-path "$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$here/bin/heddle-gpu-bench" "$@"
WRAPPER
chmod +x "$bundle/run.sh"
echo "bench/run.sh cuda: $(du -sh "$bundle" | cut -f1) in $bundle; its run.sh runs on any machine with an NVIDIA GPU" >&2
if "$only_bundle"; then exit 0; fi
exec "$bundle/run.sh" ${arguments[@]+"${arguments[@]}"}
