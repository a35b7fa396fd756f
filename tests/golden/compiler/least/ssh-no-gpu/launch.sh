#!/bin/sh
# potato-training 1.2.3: run example on backend ssh-no-gpu
# config sha256 de5f0c2596e4cb37e86b1ac3bad7161b86621e1f3db78fed6dce50a7207bc416
# Starts the run's agent, or another one that brings it a new socket. stdin: a mark, the hash of the code, then
# the agent's own line.
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

# The job directory, with the code as hard links: dropping old code never breaks a job that waits.
# model_training.backends.ssh-no-gpu.remote_dir
potato_root="$HOME"/'.cache/potato-training'
potato_job="$HOME"/'.cache/potato-training/jobs/example'
IFS= read -r potato_code || potato_fail "nobody said which code to use"
case $potato_code in '' | *[!0-9a-f]*) potato_fail "no such code" ;; esac
for potato_folder in "$potato_root/code" "$potato_root/jobs" "$potato_job"; do potato_private "$potato_folder"; done
potato_laid=$potato_job/code # with a list of its own: a job may outlast a copy of another version
if [ ! -f "$potato_laid/potato_training/worker/agent.py" ] ||
  { [ -f "$potato_laid/files" ] && ! potato_whole "$potato_laid" "$potato_laid/files"; }; then
  potato_source=$potato_root/code/$potato_code
  potato_copy=$potato_job/code.$$.tmp
  touch -c -- "$potato_source" # it counts as used now: the newest three are kept
  potato_take() { # OPTIONS of cp
    rm -rf -- "$potato_copy" && mkdir -- "$potato_copy" && cp "$1" -- "$potato_source/potato_training" "$potato_copy" &&
      cp -- "$potato_source/$potato_code" "$potato_copy/files" && potato_whole "$potato_copy" "$potato_copy/files"
  }
  potato_turn=1 # without hard links, a plain copy with the times that the compiled code goes by
  until potato_take -Rl 2> /dev/null || potato_take -Rp; do
    potato_whole "$potato_source" "$potato_source/$potato_code" || {
      potato_say code missing
      potato_fail "the code is not on $(uname -n): copy it again"
    }
    [ "$potato_turn" -lt 3 ] || potato_fail "$(uname -n) cannot copy the code to $potato_job"
    potato_turn=$((potato_turn + 1))
  done
  [ ! -d "$potato_laid" ] || mv -- "$potato_laid" "$potato_copy.old"
  mv -- "$potato_copy" "$potato_laid" || potato_fail "$(uname -n) cannot copy the code to $potato_job"
  rm -rf -- "$potato_copy.old"
fi

# What a login shell may bring along and would get into our way.
unset PYTHONPATH PYTHONHOME VIRTUAL_ENV CONDA_PREFIX CONDA_DEFAULT_ENV CONDA_SHLVL

# model_training.backends.ssh-no-gpu.gpus
export CUDA_VISIBLE_DEVICES=''
export POTATO_TRAINING_INHERIT=yes # the worker gets this environment as it is

# The agent reads the next line of stdin, its socket and token; the end of stdin is a hint to look up.
potato_python='python3'
command -v -- "$potato_python" > /dev/null || potato_fail "$potato_python was not found on $(uname -n)"
cd -- "$potato_job" || potato_fail "$(uname -n) cannot enter $potato_job"
export PYTHONPATH="code${PYTHONPATH:+:$PYTHONPATH}"
printf '%s end 0\n' "$potato_mark"
exec "$potato_python" -m potato_training.worker.agent --job-dir "$PWD"
