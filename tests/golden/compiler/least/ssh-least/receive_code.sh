#!/bin/sh
# potato-training 1.2.3: run example on backend ssh-least
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

# model_training.backends.ssh-least.remote_dir
potato_store="$HOME"/'.cache/potato-training'/code
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

# The whole copy gets its name, unless somebody else was first. Where that happens at this very moment, mv puts
# ours into theirs, beside what jobs copy.
potato_place=$potato_store/$potato_code
[ -d "$potato_place" ] || mv -- "$potato_copy" "$potato_place" 2> /dev/null || [ -d "$potato_place" ] ||
  potato_fail "$(uname -n) cannot put the code in its place under $potato_store"
rm -rf -- "${potato_place:?}/${potato_copy##*/}"
potato_clean
touch -c -- "$potato_place"
potato_say code "$potato_place"

# Nobody waits for the rest. The newest three copies stay: an old one loses its name before it loses its files, so
# that whoever copies it notices. Compiled once for all runs to come, each file elsewhere and then renamed into its
# place: while jobs copy, names may appear and none may vanish.
# model_training.backends.ssh-least.python
potato_python='python3'
"$potato_python" -I - "$potato_store" "$potato_code" > /dev/null 2>&1 << 'TIDY' &
import os, py_compile, re, shutil, sys, time
store, name = sys.argv[1:]
os.nice(10)
work = os.path.join(store, ".%s.%d" % (name, os.getpid()))
def used(entry):
    try:
        return os.stat(os.path.join(store, entry)).st_mtime
    except OSError:  # another server's, which has just got its name
        return time.time()
entries = {entry: used(entry) for entry in os.listdir(store)}
whole = sorted((n for n in entries if re.match("[0-9a-f]+$", n)), key=entries.get)
for old in whole[:-3]:
    if used(old) == entries[old]:
        gone = "%s.%s" % (work, old)
        try:
            os.rename(os.path.join(store, old), gone)
        except OSError:
            continue
        shutil.rmtree(gone, ignore_errors=True)
for cut_off in (n for n in entries if n.startswith(".") and entries[n] < time.time() - 86400):
    shutil.rmtree(os.path.join(store, cut_off), ignore_errors=True)
try:
    os.mkdir(work)
    for folder, _, files in os.walk(os.path.join(store, name)):
        for file in files:
            if file.endswith(".py"):
                made = os.path.join(work, "%s.%s.pyc" % (file[:-3], sys.implementation.cache_tag))
                py_compile.compile(os.path.join(folder, file), made, doraise=True)
                os.makedirs(os.path.join(folder, "__pycache__"), exist_ok=True)
                os.rename(made, os.path.join(folder, "__pycache__", os.path.basename(made)))
finally:
    shutil.rmtree(work, ignore_errors=True)
TIDY
potato_end 0
