#!/bin/sh
# Usage: library_alone.sh LIBRARY: fails if the library needs another one than those of the C library, exports another symbol than the
# C API, or has no version in its name.
set -eu
status=0
for needed in $(readelf -dW "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
  case "$needed" in
    libc.so.6 | libm.so.6 | libdl.so.2 | libpthread.so.0 | ld-linux*.so.*) ;;
    *)
      echo "$1 needs $needed"
      status=1
      ;;
  esac
done
exported=$(nm -D --defined-only "$1" | awk '{print $3}')
if [ -z "$exported" ]; then
  echo "$1 exports nothing"
  status=1
fi
for symbol in $exported; do
  case "$symbol" in
    heddle_*) ;;
    *)
      echo "$1 exports $symbol"
      status=1
      ;;
  esac
done
name=$(readelf -dW "$1" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')
case "$name" in
  libheddle.so.[0-9]*) ;;
  *)
    echo "$1 is named '$name'"
    status=1
    ;;
esac
exit "$status"
