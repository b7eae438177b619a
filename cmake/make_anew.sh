#!/bin/sh
# Compiles a header ahead: make_anew.sh COMPILER ARGUMENT.. An old result is removed first. The compiler would not mind it, but ccache
# takes a precompiled header that is there for an input, so that a build folder in use and a fresh one would not share their results.
before=
for argument; do
  case "$before:$argument" in -o:*.gch | -o:*.pch) rm -f "$argument" ;; esac
  before=$argument
done
exec "$@"
