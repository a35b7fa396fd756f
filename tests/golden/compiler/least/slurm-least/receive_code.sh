#!/bin/sh
# potato-training 1.2.3: run example on backend slurm-least
# config sha256 de5f0c2596e4cb37e86b1ac3bad7161b86621e1f3db78fed6dce50a7207bc416
# Receives the code that travels. stdin: a mark, the hash of the code, then a tar whose last member is named like
# the hash and lists the others, so that a copy that broke off is never taken for a whole one.
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

# A copy of the code is whole when each file of its list (lines "SIZE NAME", written last) is there with its size:
# what cleans a scratch disk takes old files and leaves their directories.
potato_whole() { # DIRECTORY LIST
  [ -s "$2" ] && [ "$(potato_sizes "$1" "$2")" = "$(cat -- "$2")" ]
}
potato_sizes() ( # DIRECTORY LIST: as they are now
  unset BLOCK_SIZE LS_BLOCK_SIZE QUOTING_STYLE
  cd -- "$1" && sed 's/^[0-9]* //' "$2" | LC_ALL=C xargs ls -ln 2> /dev/null | awk '{ print $5, $NF }'
)

potato_private() { # DIRECTORY: this account's alone, since what lies in it is run; default ACLs do not ask umask
  [ -d "$1" ] || { mkdir -p -- "$1" && chmod 700 -- "$1"; } || potato_fail "$(uname -n) cannot make $1"
  chmod go-w -- "$1" 2> /dev/null || potato_fail "$1 on $(uname -n) is another account's: remote_dir must be one's own"
}

# model_training.backends.slurm-least.remote_dir
potato_store="$HOME"/code
IFS= read -r potato_code || potato_fail "nobody said which code this is"
case $potato_code in '' | *[!0-9a-f]*) potato_fail "no such code" ;; esac
potato_copy=$potato_store/.$potato_code.$$
potato_clean() { rm -rf -- "$potato_copy" "$potato_copy.old"; }
trap potato_clean EXIT
trap 'exit 1' HUP INT TERM
potato_private "$potato_store"
potato_private "$potato_copy"
{ ( cd -- "$potato_copy" && tar -xomf - ) && potato_whole "$potato_copy" "$potato_copy/$potato_code"; } ||
  potato_fail "the copy of the code to $(uname -n) broke off"

# The whole copy gets its name, unless somebody else was first. Where that happens at this very moment, mv puts
# ours into theirs, beside what jobs copy. One that has lost files makes room as a whole: jobs have links of their own.
# Whoever takes one away puts his own in its place, and may have taken away ours.
potato_place=$potato_store/$potato_code
potato_turn=1
until potato_whole "$potato_place" "$potato_place/$potato_code"; do
  [ "$potato_turn" -le 5 ] || potato_fail "$(uname -n) cannot put the code in its place under $potato_store"
  potato_turn=$((potato_turn + 1))
  if [ -d "$potato_copy" ]; then
    [ ! -d "$potato_place" ] || mv -- "$potato_place" "$potato_copy.old" 2> /dev/null
    mv -- "$potato_copy" "$potato_place" 2> /dev/null
  else
    sleep 1
  fi
done
[ ! -d "$potato_place/${potato_copy##*/}" ] || rm -rf -- "${potato_place:?}/${potato_copy##*/}"
[ ! -d "$potato_copy" ] || touch -c -- "$potato_place"
potato_clean
potato_say code "$potato_place"

# Nobody waits for the rest: the newest three copies stay, and the new one is compiled.
# model_training.backends.slurm-least.python
potato_python='python3'
"$potato_python" -I "$potato_place/potato_training/worker/tidy.py" "$potato_store" "$potato_code" \
  < /dev/null > /dev/null 2>&1 &
potato_end 0
