#!/usr/bin/env bash
# Runs a test as a user that owns nothing, if this is root. Exit status 77, which means skipped, if it is not, or if that user cannot
# reach the program. Usage: as_user.sh PROGRAM ARGUMENTS..
set -euo pipefail

readonly user=65533
as_user=(setpriv --reuid "$user" --regid "$user" --clear-groups)
if [ "$(id -u)" -ne 0 ] || ! "${as_user[@]}" test -x "$1"; then
  exit 77
fi
exec "${as_user[@]}" env -u HOME -u XDG_CACHE_HOME "$@"
