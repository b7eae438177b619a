#!/usr/bin/env bash
# Installs what building, testing and running Heddle needs, from Debian's packages (Debian 12). Idempotent: installs only what is
# missing and needs no privileges when nothing is. Usage: deploy/setup.sh [--bench] [--fuzz] [--tests] [--check]  (--bench: also what
# the benchmarks compare with; --fuzz: also Clang with libFuzzer, for the preset `fuzz`; --tests: also programs that some tests start,
# and that they are skipped without; --check: only list what is missing)
set -euo pipefail

packages=(
  g++ cmake ninja-build pkg-config ccache mold clang-format git ca-certificates
  libgrpc++-dev protobuf-compiler-grpc libprotobuf-dev protobuf-compiler
  libabsl-dev libspdlog-dev libcli11-dev nlohmann-json3-dev libtomlplusplus-dev libssl-dev libxxhash-dev
  llvm-19-dev liblld-19-dev libzstd-dev zlib1g-dev
  libxgboost-dev libsqlite3-dev libpq-dev libz3-dev libmicrohttpd-dev prometheus-cpp-dev libcurl4-openssl-dev
  libgtest-dev libgmock-dev libonnx-testdata sqlite3 openssl python3
  python3-dev python3-venv python3-numpy pybind11-dev  # the Python package; without them it is left out
)

check=false
for argument in "$@"; do
  case "$argument" in
    --bench) packages+=(libdnnl-dev ocl-icd-opencl-dev libopenblas-pthread-dev libopenblas-dev) ;;
    --fuzz) packages+=(clang-19 libclang-rt-19-dev) ;;  # the version of the LLVM that the compiler links
    --tests) packages+=(chromium prometheus postgresql debootstrap dpkg-dev lintian man-db systemd zsh fish python3-yaml slurm-wlm munge) ;;
    --check) check=true ;;
    *)
      echo "setup.sh: '$argument' is not understood; there are --bench, --fuzz, --tests and --check" >&2
      exit 2
      ;;
  esac
done

missing=()
for package in "${packages[@]}"; do
  if ! dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed'; then
    missing+=("$package")
  fi
done
if [ ${#missing[@]} -eq 0 ]; then
  exit 0
fi
if "$check"; then
  printf '%s\n' "${missing[@]}"
  exit 1
fi

if [ ! -r /etc/debian_version ] || ! command -v apt-get >/dev/null; then
  echo "setup.sh: Debian 12 is expected; install the equivalents of: ${missing[*]}" >&2
  exit 2
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "setup.sh: needs root to install: ${missing[*]}" >&2
    exit 2
  fi
  as_root=(sudo)
fi
echo "setup.sh: installing ${#missing[@]} packages" >&2
export DEBIAN_FRONTEND=noninteractive
# On failure the package manager's own words are what helps.
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { "${as_root[@]}" apt-get update && "${as_root[@]}" apt-get install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
  tail -n 20 "$log" >&2
  echo "setup.sh: the installation failed; see above" >&2
  exit 1
fi
