#!/usr/bin/env bash
# Makes Debian packages of the release build: heddle-client, heddle-server (scheduler, tracker, simulator), heddle-worker, libheddle0,
# libheddle-dev and python3-heddle. They run on the Debian release that they are made on; libheddle0 runs on later ones, too. A build
# without the Python package gives no python3-heddle.
#
# Usage: deploy/packages.sh [--no-build] [FOLDER]   (default: build/packages; --no-build: the programs are built already)
# Who makes packages for others says so by DEBFULLNAME and DEBEMAIL, as with Debian's own tools.
set -euo pipefail
cd "$(dirname "$0")/.."
umask 022

build=true
folder=build/packages
while [ $# -gt 0 ]; do
  case "$1" in
    --no-build) build=false ;;
    -*)
      echo "packages.sh: '$1' is not understood; there is --no-build" >&2
      exit 2
      ;;
    *) folder=$1 ;;
  esac
  shift
done
for tool in dpkg-deb dpkg-shlibdeps strip; do
  command -v "$tool" >/dev/null || {
    echo "packages.sh: $tool is missing: apt install dpkg-dev binutils" >&2
    exit 2
  }
done
if "$build"; then
  deploy/build.sh heddle heddle-scheduler heddle-tracker heddle-worker heddle-sim heddle_shared heddle_python installed_texts
fi

version=$(sed -n 's/^project(heddle VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
architecture=$(dpkg --print-architecture)
maintainer="${DEBFULLNAME:-the authors of Heddle} <${DEBEMAIL:-heddle@localhost}>"
# The time of the last commit, so that the same commit gives the same packages.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || date +%s)
export SOURCE_DATE_EPOCH
mkdir -p "$folder"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# dependencies NAME: the libraries that the programs of the tree need, as Debian names them with the versions.
dependencies() {
  local files
  mapfile -t files < <(find "$work/$1/usr/bin" "$work/$1/usr/lib" -type f -perm -u=x -o -name '*.so*' -type f 2>/dev/null |
    while read -r file; do if head -c 4 "$file" | grep -q ELF; then echo "$file"; fi; done)
  [ ${#files[@]} -gt 0 ] || return 0
  mkdir -p "$work/source/debian"
  printf 'Source: heddle\nMaintainer: %s\n\nPackage: %s\nArchitecture: any\n' "$maintainer" "$1" >"$work/source/debian/control"
  (cd "$work/source" && dpkg-shlibdeps -O -S"$work/libheddle0" "${files[@]}") | sed -n 's/^shlibs:Depends=//p'
}

# unpack_wheel WHEEL TREE: the Python package as it is in the wheel, but for what Debian has elsewhere: libheddle.so in libheddle0, and the
# licence. Without the list of files (RECORD), pip leaves the package to Debian.
unpack_wheel() {
  local packages=$2/usr/lib/python3/dist-packages
  local info=$packages/heddle-$version.dist-info
  mkdir -p "$packages"
  python3 -m zipfile -e "$1" "$packages"
  rm "$packages"/heddle/libheddle.so.* "$info/LICENSE" "$info/RECORD"
  echo debian >"$info/INSTALLER"
  strip --strip-unneeded --remove-section=.comment "$packages"/heddle/*.so
}

# package NAME CONTENT SECTION RECOMMENDS DEPENDS SUMMARY, with the long description on stdin and the scripts of the package in the
# folder $work/NAME.scripts. CONTENT: a component of `cmake --install`, or a wheel.
package() {
  local name=$1 content=$2 section=$3 recommends=$4 depends=$5 summary=$6
  local tree=$work/$name doc=$work/$name/usr/share/doc/$name libraries size
  if [ "${content%.whl}" != "$content" ]; then
    unpack_wheel "$content" "$tree"
  elif ! DESTDIR=$tree cmake --install build/release --component "$content" --prefix /usr --strip >"$work/install.log" 2>&1; then
    cat "$work/install.log" >&2
    exit 1
  fi
  mkdir -p "$doc" "$tree/DEBIAN"
  cp deploy/debian/copyright "$doc/copyright"
  rm -f "$tree/usr/share/doc/heddle/LICENSE" # Debian has it at a place of its own
  printf 'heddle (%s) unstable; urgency=medium\n\n  * Built from the commit %s.\n\n -- %s  %s\n' "$version" \
    "$(git rev-parse --short HEAD 2>/dev/null || echo unknown)" "$maintainer" "$(date -u -R -d "@$SOURCE_DATE_EPOCH")" |
    gzip -9n >"$doc/changelog.gz"
  find "$tree" -path '*/man/*' -type f -exec gzip -9n {} +
  if [ -d "$work/$name.etc" ]; then
    cp -r "$work/$name.etc" "$tree/etc"
    (cd "$tree" && find etc -type f -printf '/%p\n' | sort) >"$tree/DEBIAN/conffiles"
  fi
  [ ! -d "$work/$name.scripts" ] || cp "$work/$name.scripts"/* "$tree/DEBIAN/"
  find "$tree" -mindepth 1 -type d -exec chmod 755 {} +
  find "$tree" -name '*.so*' -type f -exec chmod 644 {} +
  libraries=$(dependencies "$name")
  depends=$(printf '%s' "$depends${depends:+${libraries:+, }}$libraries")
  size=$(du -sk --apparent-size --exclude=DEBIAN "$tree" | cut -f1)
  {
    printf 'Package: %s\nSource: heddle\nVersion: %s\nArchitecture: %s\nMaintainer: %s\n' "$name" "$version" "$architecture" "$maintainer"
    printf 'Installed-Size: %s\nSection: %s\nPriority: optional\n' "$size" "$section"
    [ -z "$depends" ] || printf 'Depends: %s\n' "$depends"
    [ -z "$recommends" ] || printf 'Recommends: %s\n' "$recommends"
    printf 'Description: %s\n' "$summary"
    sed 's/^/ /'
  } >"$tree/DEBIAN/control"
  (cd "$tree" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | sort -z | xargs -0 md5sum) >"$tree/DEBIAN/md5sums"
  rm -f "$folder/${name}_"*.deb
  dpkg-deb --root-owner-group --build "$tree" "$folder/${name}_${version}_$architecture.deb"
}

# daemon_scripts NAME USER UNIT..: what the package does when it is installed and removed. It starts nothing: which cores measure is for
# the administrator to say, in /etc/default. USER may be empty.
daemon_scripts() {
  local name=$1 user=$2 unit
  mkdir -p "$work/$name.scripts" "$work/$name.etc/default"
  for unit in "${@:3}"; do cp "deploy/debian/default/$unit" "$work/$name.etc/default/$unit"; done
  {
    printf '#!/bin/sh\nset -e\nif [ "$1" = configure ]; then\n'
    if [ -n "$user" ]; then
      printf '  if ! getent passwd %s >/dev/null; then\n' "$user"
      printf '    adduser --system --group --quiet --home /var/lib/%s --no-create-home %s\n  fi\n' "$user" "$user"
    fi
    printf '  if [ -d /run/systemd/system ]; then\n    systemctl daemon-reload || true\n'
    # Those that run take the new program.
    printf '    [ -z "$2" ] || systemctl try-restart %s || true\n  fi\nfi\n' "${*:3}"
  } >"$work/$name.scripts/postinst"
  {
    printf '#!/bin/sh\nset -e\nif [ "$1" = remove ] && [ -d /run/systemd/system ]; then\n'
    printf '  systemctl --no-reload disable --now %s || true\nfi\n' "${*:3}"
  } >"$work/$name.scripts/prerm"
  # The data stay: people's jobs and months of measurements are not for `apt purge` to take.
  printf '#!/bin/sh\nset -e\nif [ -d /run/systemd/system ]; then\n  systemctl daemon-reload || true\nfi\n' >"$work/$name.scripts/postrm"
  chmod 755 "$work/$name.scripts"/*
}

daemon_scripts heddle-server heddle heddle-tracker heddle-scheduler heddle-scheduler-standby
daemon_scripts heddle-worker '' heddle-worker
mkdir -p "$work/libheddle0.scripts"
printf 'libheddle 0 libheddle0 (>= %s)\n' "$version" >"$work/libheddle0.scripts/shlibs"
printf 'activate-noawait ldconfig\n' >"$work/libheddle0.scripts/triggers"
# Python's bytecode is made where the package is installed.
mkdir -p "$work/python3-heddle.scripts"
printf '#!/bin/sh\nset -e\nif [ "$1" = configure ]; then\n  py3compile -p python3-heddle\nfi\n' >"$work/python3-heddle.scripts/postinst"
printf '#!/bin/sh\nset -e\npy3clean -p python3-heddle\n' >"$work/python3-heddle.scripts/prerm"
chmod 755 "$work/python3-heddle.scripts"/*

package heddle-client client science 'heddle-server, heddle-worker' '' 'tunes neural networks for the machine they run on' <<'END'
The command heddle submits models to a service that tunes them, shows its
jobs, and fetches and runs the modules. With heddle-server and heddle-worker
on the same machine it starts such a service by itself.
END
package heddle-server server science openssl adduser 'scheduler and tracker of Heddle' <<'END'
The scheduler interleaves the stages of many tuning jobs over shared
workers and keeps all measurements in one database. The tracker knows the
workers. heddle-sim runs the scheduler under a virtual clock, and heddle-ca
makes certificates.
END
package heddle-worker worker science '' '' 'builds and measures candidates for Heddle' <<'END'
The worker offers cores and GPUs of its machine as slots. Each stage of a
tuning job runs there in a confined process of its own.
END
package libheddle0 lib libs '' '' 'runs modules that Heddle has tuned' <<'END'
The runtime of Heddle behind a C API. It needs nothing but the C library.
END
package libheddle-dev dev libdevel '' "libheddle0 (= $version)" 'header of libheddle' <<'END'
The header, and how CMake and pkg-config find the library: for programs that
run modules which Heddle has tuned.
END

# The wheel for Debian's own Python.
minor=$(/usr/bin/python3 -c 'import sys; print(sys.version_info.minor)')
wheel=build/release/python/heddle-$version-cp3$minor-cp3$minor-linux_$(uname -m).whl
if [ ! -e "$wheel" ]; then
  echo "packages.sh: there is no $wheel (target heddle_python), so python3-heddle is left out" >&2
  exit 0
fi
# NumPy as in the wheel's own METADATA.
package python3-heddle "$wheel" python 'heddle-server, heddle-worker' \
  "python3 (>= 3.$minor~), python3 (<< 3.$((minor + 1))), python3-numpy (>= 1:1.23)" 'tunes and runs models from Python' <<'END'
The package heddle of Python tunes models of ONNX, torch, scikit-learn,
XGBoost and LightGBM, follows jobs of a service, and runs tuned modules on
NumPy arrays. With heddle-server and heddle-worker on the same machine it
starts such a service by itself.
END
