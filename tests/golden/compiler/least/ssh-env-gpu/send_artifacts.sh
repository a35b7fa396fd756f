#!/bin/sh
# potato-training 1.2.3: run example on backend ssh-env-gpu
# config sha256 de5f0c2596e4cb37e86b1ac3bad7161b86621e1f3db78fed6dce50a7207bc416
# Sends the model files: first a line "file=BYTES NAME" for each, then "total=BYTES" and "MARK data", then a tar.
# Files over the limit are named in "left=BYTES NAME" and stay. The exit code is tar's. stdin: a mark.
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

# model_training.backends.ssh-env-gpu.remote_dir, fetch_artifacts, max_artifact_mb
potato_job="$HOME"/'.cache/potato-training/jobs/example'
potato_limit='2147483648'
cd -- "$potato_job/artifacts" 2> /dev/null || {
  potato_say total 0
  potato_end 0
}
potato_list=$potato_job/artifacts.$$.tmp
potato_clean() { rm -f -- "$potato_list"; }
trap potato_clean EXIT
trap 'exit 1' HUP INT TERM
: > "$potato_list" || potato_fail "$(uname -n) cannot write to $potato_job"
find . -type f | LC_ALL=C sort | {
  potato_total=0
  while IFS= read -r potato_file; do
    potato_bytes=$(($(wc -c < "$potato_file")))
    if [ "$potato_bytes" -le "$potato_limit" ]; then
      potato_say file "$potato_bytes ${potato_file#./}"
      printf '%s\n' "$potato_file" >> "$potato_list"
      potato_total=$((potato_total + potato_bytes))
    else
      potato_say left "$potato_bytes ${potato_file#./}"
    fi
  done
  potato_say total "$potato_total"
}
[ -s "$potato_list" ] || potato_end 0
printf '%s data\n' "$potato_mark"
tar -cf - -T "$potato_list"
