#!/bin/sh
# potato-training 1.2.3: run example on backend slurm-export
# config sha256 de5f0c2596e4cb37e86b1ac3bad7161b86621e1f3db78fed6dce50a7207bc416
# Receives the code that travels. stdin: a mark, the hash of the code, then a tar whose last member is named like
# the hash, so that a copy that broke off is never taken for a whole one.
IFS= read -r potato_mark || exit 64
printf '\n%s begin\n' "$potato_mark"
umask 077
# An answer is lines of key=value between "MARK begin" and "MARK end CODE". The mark is the first line of stdin,
# another one for each call, so that whatever a login shell prints is never taken for an answer.
potato_say() { printf '%s=%s\n' "$1" "$2"; } # KEY VALUE
potato_end() { # CODE
  printf '%s end %s\n' "$potato_mark" "$1"
  exit "$1"
}
potato_fail() { # MESSAGE
  potato_say error "$1"
  potato_end 1
}

# What a login shell may bring along and would get into our way.
unset PYTHONPATH PYTHONHOME VIRTUAL_ENV CONDA_PREFIX CONDA_DEFAULT_ENV CONDA_SHLVL

# model_training.backends.slurm-export.remote_dir
potato_store="$HOME"/'pt'/code
IFS= read -r potato_code || potato_fail "nobody said which code this is"
case $potato_code in '' | *[!0-9a-f]*) potato_fail "no such code" ;; esac
mkdir -p -- "$potato_store" || potato_fail "$(uname -n) cannot make $potato_store"
potato_copy=$potato_store/.$potato_code.$$
potato_clean() { rm -rf -- "$potato_copy"; }
trap potato_clean EXIT
trap 'exit 1' HUP INT TERM
mkdir -- "$potato_copy" || potato_fail "$(uname -n) cannot make $potato_copy"
{ ( cd -- "$potato_copy" && tar -xof - ) && rm -- "$potato_copy/$potato_code"; } ||
  potato_fail "the copy of the code to $(uname -n) broke off"

# The whole copy gets its name, unless somebody else was first; the newest three stay.
# model_training.backends.slurm-export.python
potato_python='python3'
"$potato_python" - "$potato_store" "$potato_copy" "$potato_code" << 'PLACE' ||
import os, re, shutil, sys, time
store, copy, name = sys.argv[1:]
try:
    os.rename(copy, os.path.join(store, name))
except OSError:
    if not os.path.isdir(os.path.join(store, name)):
        raise
os.utime(os.path.join(store, name))
entries = {}
for entry in os.scandir(store):
    try:
        entries[entry.name] = entry.stat().st_mtime
    except OSError:  # another server's copy, which has just got its name
        pass
whole = sorted((n for n in entries if re.match("[0-9a-f]+$", n)), key=entries.get)
cut_off = [n for n in entries if n.startswith(".") and entries[n] < time.time() - 86400]
for old in whole[:-3] + cut_off:
    shutil.rmtree(os.path.join(store, old), ignore_errors=True)
PLACE
  potato_fail "$(uname -n) cannot put the code in its place under $potato_store"
potato_clean # there is something left when somebody else was first
potato_say code "$potato_store/$potato_code"

# Compiled once for all runs to come; nobody waits for it.
"$potato_python" -m compileall -q "$potato_store/$potato_code" < /dev/null > /dev/null 2>&1 &
potato_end 0
