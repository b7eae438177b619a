#!/usr/bin/env bash
# Makes the Debian packages of the release build and looks into them. With --root it also shows them to lintian, installs them into a new
# minimal Debian (debootstrap, with the mirror of this machine; needs root and takes some minutes), starts the service there as the units
# do, and tunes a small model, from Python, too.
# Usage: packages_test.sh [--root]
set -euo pipefail
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
started=()
mounted=()
clean_up() {
  for pid in "${started[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${started[@]}"; do wait "$pid" 2>/dev/null || true; done
  for folder in "${mounted[@]}"; do umount -l "$folder" || true; done
  # A root that still has something mounted is not removed.
  if ! grep -q " $work/" /proc/self/mounts; then rm -rf "$work"; fi
}
trap clean_up EXIT

fail() {
  echo "packages_test: $*" >&2
  exit 1
}

for tool in dpkg-deb dpkg-shlibdeps; do
  command -v "$tool" >/dev/null || {
    echo "$tool is missing: apt install dpkg-dev; the packages are not tested"
    exit 0
  }
done
# Compression would be most of the time.
[ "${1:-}" = --root ] || export DPKG_DEB_COMPRESSOR_TYPE=none
deploy/packages.sh --no-build "$work/packages" >"$work/log" 2>&1 || fail "$(tail -n 20 "$work/log")"
if grep -i warning "$work/log"; then fail "packages.sh warns"; fi

# in_package NAME FILE..: the package has these files.
in_package() {
  local name=$1 listed file
  listed=$(dpkg-deb -c "$work/packages/${name}_"*.deb)
  for file in "${@:2}" "./usr/share/doc/$name/copyright" "./usr/share/doc/$name/changelog.gz"; do
    grep -qF "$file" <<<"$listed" || fail "$name has no $file"
  done
  if grep -q ' \./\(usr/local\|root\)' <<<"$listed"; then fail "$name has files where packages have none"; fi
}
field() { dpkg-deb -f "$work/packages/${1}_"*.deb "$2"; }
in_package heddle-client ./usr/bin/heddle ./usr/share/man/man1/heddle.1.gz ./usr/share/bash-completion/completions/heddle \
  ./usr/share/doc/heddle/docs/python.md ./usr/share/doc/heddle/python/README.md
in_package heddle-server ./usr/bin/heddle-scheduler ./usr/bin/heddle-tracker ./usr/bin/heddle-sim ./usr/bin/heddle-ca \
  ./usr/lib/systemd/system/heddle-scheduler.service ./etc/default/heddle-tracker \
  ./usr/lib/systemd/system/heddle-scheduler-standby.service ./etc/default/heddle-scheduler-standby \
  ./usr/share/heddle/prometheus/prometheus.yml ./usr/share/heddle/grafana/heddle.json
in_package heddle-worker ./usr/bin/heddle-worker ./usr/lib/systemd/system/heddle-worker.service ./etc/default/heddle-worker
in_package libheddle0 ./usr/lib/libheddle.so.0
in_package libheddle-dev ./usr/include/heddle.h ./usr/lib/libheddle.so ./usr/lib/pkgconfig/heddle.pc \
  ./usr/lib/cmake/heddle/heddle-config.cmake
grep -q 'libllvm19' <<<"$(field heddle-worker Depends)" || fail "heddle-worker does not depend on LLVM: $(field heddle-worker Depends)"
grep -qE '^libc6 \([^,]*\)$' <<<"$(field libheddle0 Depends)" || fail "libheddle0 needs more than libc6: $(field libheddle0 Depends)"
for package in heddle-server heddle-worker; do
  dpkg-deb -e "$work/packages/${package}_"*.deb "$work/$package"
  for script in postinst prerm postrm; do sh -n "$work/$package/$script" || fail "$script of $package is no script"; done
  grep -q '^/etc/default/heddle-' "$work/$package/conffiles" || fail "$package would overwrite what its administrator wrote"
done
python=false
if compgen -G "$work/packages/python3-heddle_*.deb" >/dev/null; then
  python=true
  in_package python3-heddle ./usr/lib/python3/dist-packages/heddle/py.typed
  for package in python3-heddle libheddle0; do dpkg-deb -x "$work/packages/${package}_"*.deb "$work/python"; done
  PYTHONPATH=$work/python/usr/lib/python3/dist-packages LD_LIBRARY_PATH=$work/python/usr/lib \
    /usr/bin/python3 -B tests/install/python_package.py "$work/python" build/release/python "$(field python3-heddle Depends)" ||
    fail "python3-heddle is not as it should be"
  dpkg-deb -e "$work/packages/python3-heddle_"*.deb "$work/python3-heddle"
  for script in postinst prerm; do sh -n "$work/python3-heddle/$script" || fail "$script of python3-heddle is no script"; done
else
  echo "the build has no wheel for Debian's Python; python3-heddle is not tested"
fi
(cd "$work" && mkdir tree && dpkg-deb -x packages/heddle-worker_*.deb tree && dpkg-deb --control packages/heddle-worker_*.deb control &&
  cd tree && md5sum -c --quiet ../control/md5sums) || fail "the checksums of heddle-worker do not fit its files"
echo "$(find "$work/packages" -name '*.deb' | wc -l) packages are as they should be"
[ "${1:-}" = --root ] || exit 0
if command -v lintian >/dev/null; then
  # Whoever publishes the packages gives an address (DEBEMAIL).
  lintian --fail-on error --suppress-tags bogus-mail-host,bogus-mail-host-in-debian-changelog "$work"/packages/*.deb || fail "lintian finds errors"
fi

# ---- on a clean root ----

if [ "$(id -u)" -ne 0 ] || ! command -v debootstrap >/dev/null; then
  echo "the clean root needs root and debootstrap (apt install debootstrap); it is not tested"
  exit 0
fi
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | head -n 1)
release=$(. /etc/os-release && echo "$VERSION_CODENAME")
root=$work/root
debootstrap --variant=minbase --include=ca-certificates "$release" "$root" "$mirror" >"$work/log" 2>&1 ||
  fail "debootstrap: $(tail -n 5 "$work/log")"
# How this machine reaches its mirror.
cp -r /etc/apt/apt.conf.d/. "$root/etc/apt/apt.conf.d/"
cp /etc/resolv.conf "$root/etc/resolv.conf"
cp /etc/hosts "$root/etc/hosts"
if [ -d /usr/local/share/ca-certificates ]; then
  cp -r /usr/local/share/ca-certificates/. "$root/usr/local/share/ca-certificates/"
  chroot "$root" update-ca-certificates >"$work/log" 2>&1 || fail "$(tail -n 3 "$work/log")"
fi
for folder in proc dev sys; do
  mount --rbind "/$folder" "$root/$folder"
  mount --make-rslave "$root/$folder"
  mounted+=("$root/$folder")
done
in_root() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive HEDDLE_MACHINE=table "$@"; }
mkdir "$root/packages"
cp "$work"/packages/*.deb "$root/packages/"
in_root apt-get update >"$work/log" 2>&1 || fail "apt-get update: $(tail -n 5 "$work/log")"
in_root sh -c 'apt-get install -y --no-install-recommends /packages/*.deb' >"$work/log" 2>&1 || fail "$(tail -n 20 "$work/log")"
in_root sh -c 'for file in /usr/bin/heddle*; do ldd "$file" 2>/dev/null | grep "not found" && exit 1; done; exit 0' || fail "a library is missing"
in_root getent passwd heddle >/dev/null || fail "there is no user heddle"

# The service as the units start it, on ports that nobody else has. A socket stands for the service manager.
options() { (. "$root/etc/default/$1" && eval "echo \$$2"); }
start() { # start LOG USER COMMAND..
  chroot --userspec="$2" "$root" env -i PATH=/usr/bin:/bin HOME=/nonexistent HEDDLE_MACHINE=table "${@:3}" >"$work/$1.log" 2>&1 &
  started+=($!)
}
until_file() { # until_file FILE LOG
  for _ in $(seq 300); do
    [ ! -s "$1" ] || return 0
    sleep 0.1
  done
  fail "$2 does not start: $(cat "$work/$2.log")"
}
[ -n "$(options heddle-worker HEDDLE_WORKER_OPTIONS)" ] || fail "/etc/default/heddle-worker has no options"
for folder in heddle heddle-tracker; do
  mkdir -p "$root/var/lib/$folder"
  chroot "$root" chown heddle:heddle "/var/lib/$folder"
done
start tracker heddle:heddle heddle-tracker --state /var/lib/heddle-tracker/tracker.state --listen 127.0.0.1:0 --port-file /var/lib/heddle-tracker/port
until_file "$root/var/lib/heddle-tracker/port" tracker
tracker=127.0.0.1:$(cat "$root/var/lib/heddle-tracker/port")
start scheduler heddle:heddle heddle-scheduler --data /var/lib/heddle --listen 127.0.0.1:0 --tracker "$tracker" --port-file /var/lib/heddle/port
until_file "$root/var/lib/heddle/port" scheduler
# shellcheck disable=SC2046  # several words are meant
start worker root:root env XDG_CACHE_HOME=/var/cache/heddle-worker heddle-worker $(options heddle-worker HEDDLE_WORKER_OPTIONS) --tracker "$tracker"
export HEDDLE_SERVER=127.0.0.1:$(cat "$root/var/lib/heddle/port")
in_root sh -c "export HEDDLE_SERVER=$HEDDLE_SERVER && cd /root && heddle zoo mlp -o mlp.onnx && timeout 300 heddle tune mlp.onnx -o mlp.heddle --trials 4 &&
  heddle run mlp.heddle --check mlp.onnx && heddle devices" >"$work/log" 2>&1 ||
  fail "$(cat "$work/log" "$work"/{tracker,scheduler,worker}.log | tail -n 30)"
grep 'against the interpreter' "$work/log"

if "$python"; then
  cat >"$root/root/tunes.py" <<'END'
import importlib.metadata
import heddle, numpy

assert heddle.__file__.startswith("/usr/lib/python3/dist-packages/"), heddle.__file__
assert importlib.metadata.version("heddle") == heddle.__version__
module = heddle.tune("/root/mlp.onnx", trials=2, force=True, compare=False, progress=False)  # by a service that it starts
assert module.job.state == "done" and len(module.job.trials()) > 0
x = numpy.random.default_rng(1).standard_normal(module.inputs[0].shape).astype("float32")
here, other = (m.run({"input": x})["probabilities"] for m in (module, heddle.Module("/root/mlp.heddle")))
numpy.testing.assert_allclose(here, other, rtol=1e-4, atol=1e-6)
print(f"Python {importlib.metadata.version('heddle')} tunes and runs: {module.job}")
END
  in_root timeout 300 python3 /root/tunes.py >"$work/log" 2>&1 || fail "$(tail -n 20 "$work/log")"
  cat "$work/log"
  packages=$root/usr/lib/python3/dist-packages
  compgen -G "$packages/heddle/__pycache__/client.*.pyc" >/dev/null || fail "python3-heddle has no bytecode"
  in_root apt-get remove -y python3-heddle >"$work/log" 2>&1 || fail "$(tail -n 20 "$work/log")"
  [ ! -e "$packages/heddle" ] || fail "python3-heddle leaves $(find "$packages/heddle")"
fi
echo "the packages tune on a clean $release"
