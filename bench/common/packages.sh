# install_packages FOLDER VENV: makes the virtual environment build/bench/VENV of the repository at $root with the packages of
# bench/FOLDER/requirements*.txt, anew when their lists change. What requirements-NAME.txt lists is left out where it does not install.
# Sets `python` and `venv`. For bash scripts to read in.
install_packages() {
  local requirements=$root/bench/$1 optional
  venv=$root/build/bench/$2
  python="$venv/bin/python"
  cat "$requirements"/requirements*.txt | cmp -s - "$venv/installed.txt" && return
  echo "installing packages into build/bench/$2" >&2
  rm -rf "$venv"
  mkdir -p "$root/build/bench"
  python3 -m venv "$venv"
  if [ -e "$requirements/requirements.txt" ]; then
    "$python" -m pip install --quiet --disable-pip-version-check -r "$requirements/requirements.txt" >&2
  fi
  for optional in "$requirements"/requirements-*.txt; do
    "$python" -m pip install --quiet --disable-pip-version-check -r "$optional" >&2 ||
      echo "the packages of ${optional#"$root/"} do not install here; what needs them is not measured" >&2
  done
  cat "$requirements"/requirements*.txt > "$venv/installed.txt"
}
