#!/usr/bin/env bash
# Installs the build into a new prefix, moves that, and uses it as others do: programs of the folder examples/ by find_package and
# pkg-config, man pages, completion.
# Usage: install_test.sh BUILD_DIR WRITE_TEST_MODULE
set -euo pipefail
build=$1
write_test_module=$2
source=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  echo "install_test: $*" >&2
  exit 1
}
# expect TEXT IN WHAT
expect() {
  grep -qF -- "$1" <<<"$2" || fail "$3 lacks '$1'; it is: $2"
}

cmake --install "$build" --prefix "$work/first" >"$work/log" 2>&1 || fail "$(tail -n 5 "$work/log")"
mv "$work/first" "$work/moved" # nothing may depend on the place
prefix=$work/moved
for program in heddle heddle-scheduler heddle-tracker heddle-worker heddle-sim heddle-ca; do
  [ -x "$prefix/bin/$program" ] || fail "bin/$program is not installed"
done
version=$("$prefix/bin/heddle" --version | cut -d' ' -f2)

"$write_test_module" "$work/model.heddle"
export LD_LIBRARY_PATH=$prefix/lib
wanted=$(printf 'a: f32 10x100\ny: f32 10x100, the largest value 62875.6 at 999')
for language in c cpp; do
  cmake -S "$source/examples/$language" -B "$work/$language" -DCMAKE_PREFIX_PATH="$prefix" >"$work/log" 2>&1 || fail "$(cat "$work/log")"
  cmake --build "$work/$language" >"$work/log" 2>&1 || fail "$(cat "$work/log")"
  got=$("$work/$language/run_module" "$work/model.heddle")
  [ "$got" = "$wanted" ] || fail "examples/$language prints '$got', not '$wanted'"
  if "$work/$language/run_module" "$work/log" 2>"$work/errors"; then fail "examples/$language runs what is no module"; fi
  grep -q "^run_module: .*log.*module" "$work/errors" || fail "examples/$language says: $(cat "$work/errors")"
done
# Another minor version may have another API.
printf 'cmake_minimum_required(VERSION 3.16)\nproject(other LANGUAGES C)\nfind_package(heddle 0.9 REQUIRED)\n' >"$work/CMakeLists.txt"
if cmake -S "$work" -B "$work/other" -DCMAKE_PREFIX_PATH="$prefix" >"$work/log" 2>&1; then fail "find_package(heddle 0.9) takes $version"; fi

if command -v pkg-config >/dev/null; then
  export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
  [ "$(pkg-config --modversion heddle)" = "$version" ] || fail "pkg-config has another version than heddle, which is $version"
  # shellcheck disable=SC2046  # several words are meant
  cc "$source/examples/c/run_module.c" $(pkg-config --cflags --libs heddle) -o "$work/by_pkg_config"
  [ "$("$work/by_pkg_config" "$work/model.heddle")" = "$wanted" ] || fail "the program made with pkg-config prints something else"
else
  echo "pkg-config is missing: apt install pkg-config; heddle.pc is not tested"
fi

for program in heddle heddle-scheduler heddle-tracker heddle-worker heddle-sim heddle-ca; do
  page=$prefix/share/man/man1/$program.1
  [ -s "$page" ] || fail "there is no man page of $program"
  if grep -n "$HOME/\." "$page"; then fail "the man page of $program tells of the home where it was built"; fi
  if command -v man >/dev/null; then
    text=$(MANWIDTH=100 man --warnings -l "$page" 2>"$work/errors")
    [ ! -s "$work/errors" ] || fail "man warns of $program: $(cat "$work/errors")"
    expect "$program - " "$text" "the man page of $program"
  else
    echo "man is missing: apt install man-db; the page of $program is not shown"
  fi
done
text=$(cat "$prefix/share/man/man1/heddle.1")
expect '.SS heddle records export' "$text" 'the man page of heddle'
expect 'environment: HEDDLE_SERVER' "$text" 'the man page of heddle'
expect 'one of joint, sequential, off' "$text" 'the man page of heddle'

# completed WORD..: what bash offers for the last word.
completed() {
  bash -c '
    source "$1"
    shift
    COMP_WORDS=("$@")
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _heddle
    printf "%s\n" "${COMPREPLY[@]}" | paste -sd" "' _ "$prefix/share/bash-completion/completions/heddle" "$@"
}
[ "$(completed heddle rec)" = records ] || fail "'heddle rec' completes to '$(completed heddle rec)'"
[ "$(completed heddle records ex)" = export ] || fail "'heddle records ex' completes to '$(completed heddle records ex)'"
[ "$(completed heddle tune --plan s)" = sequential ] || fail "--plan s completes to '$(completed heddle tune --plan s)'"
[ "$(completed heddle tune --plan = o)" = off ] || fail "--plan=o completes to '$(completed heddle tune --plan = o)'"
expect --trials "$(completed heddle submit --t)" "'heddle submit --t'"
expect --server "$(completed heddle submit --s)" "'heddle submit --s'"
[ -z "$(completed heddle fetch --output x)" ] || fail "a file name is not left to bash: '$(completed heddle fetch --output x)'"
if completed heddle comp | grep -q completion; then fail "the hidden command is offered"; fi
for shell in zsh fish; do
  file=$prefix/share/zsh/site-functions/_heddle
  [ "$shell" = zsh ] || file=$prefix/share/fish/vendor_completions.d/heddle.fish
  [ -s "$file" ] || fail "there is no completion for $shell"
  if command -v "$shell" >/dev/null; then
    "$shell" -n "$file" || fail "$shell does not read its completion"
  else
    echo "$shell is missing: apt install $shell; its completion is not read"
  fi
done
[ -e "$prefix/share/doc/heddle/LICENSE" ] || fail "there is no licence"
[ -e "$prefix/lib/systemd/system/heddle-worker.service" ] || fail "there is no unit of the worker"
echo "installed and used: heddle $version"
