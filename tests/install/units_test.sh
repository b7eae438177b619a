#!/usr/bin/env bash
# The units as systemd reads them, and the container recipe as far as it can be read without a container engine.
# Usage: units_test.sh SOURCE_DIR BIN_DIR
set -euo pipefail
source=$1
bin=$(realpath "$2")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for unit in heddle-tracker heddle-scheduler heddle-scheduler-standby heddle-worker; do
  program=${unit%-standby}
  file=$source/deploy/systemd/$unit.service
  for wanted in Type=notify WatchdogSec= "ExecStart=$program " "EnvironmentFile=-/etc/default/$unit"; do
    grep -q "^$wanted" "$file" || {
      echo "$file has no line '$wanted'" >&2
      exit 1
    }
  done
  # The default file and the unit give the same options, so that a package changes nothing.
  variable=$(grep -o '^[A-Z_]*_OPTIONS=".*"' "$source/deploy/debian/default/$unit")
  grep -qF "Environment=\"${variable//\"/}\"" "$file" || {
    echo "$file and deploy/debian/default/$unit differ: $variable" >&2
    exit 1
  }
  # Every option that the unit names is there.
  grep -oE -- '--[a-z-]+' <<<"$(grep -E '^(ExecStart|Environment)=' "$file")" | sort -u | while read -r option; do
    "$bin/$program" --help | grep -q -- "$option" || {
      echo "$file: $program has no $option" >&2
      exit 1
    }
  done
  # The programs are not installed here, and their pages neither.
  sed "s|^ExecStart=|ExecStart=$bin/|; /^Documentation=/d" "$file" >"$work/$unit.service"
done
if command -v systemd-analyze >/dev/null; then
  said=$(SYSTEMD_LOG_LEVEL=warning systemd-analyze verify --man=no "$work"/*.service 2>&1 | grep "$work\|heddle-" || true)
  [ -z "$said" ] || {
    echo "$said" >&2
    exit 1
  }
else
  echo "systemd-analyze is missing: apt install systemd; the units are not verified"
fi
