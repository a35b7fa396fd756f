#!/bin/sh
# potato-training 1.2.3: run example on backend gpu
# config sha256 0bbcb8055104c8034847d18e5ae4fdfacf914b4c5257f688584babd864dc1c5e
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
# model_training.backends.gpu.remote_dir
potato_root="$HOME"/'potato runs/training'
potato_job="$HOME"/'potato runs/training/jobs/example'
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

# model_training.backends.gpu.prelude: in a login bash, so that `source` and `module` are there. What the profile and
# the prelude print goes to stderr, what they read is empty; 3 and 4 keep our own stdin and stdout meanwhile.
cat > "$potato_job/start.sh" << 'START' || potato_fail "$(uname -n) cannot write to $potato_job"
#!/bin/bash -l
potato_mark=$1
potato_job=$2
exec >&4
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

# model_training.backends.gpu.env
export HF_HOME='/data/hf'
export GREETING='hello there'

# model_training.backends.gpu.env_file: lines KEY=VALUE, taken as they are
potato_file="$HOME"/'.config/potato.env'
[ -r "$potato_file" ] || potato_fail "env_file $potato_file cannot be read on $(uname -n)"
case $(ls -ldL -- "$potato_file") in
  -???------*) ;;
  *) potato_fail "env_file $potato_file can be read by others: chmod 600 it" ;;
esac
potato_number=0
potato_return=$(printf '\r')
while IFS= read -r potato_line || [ -n "$potato_line" ]; do
  potato_number=$((potato_number + 1))
  potato_line=${potato_line%"$potato_return"}
  case $potato_line in '' | '#'*) continue ;; esac
  case ${potato_line%%=*} in
    "$potato_line" | '' | [0-9]* | *[!A-Za-z0-9_]*)
      potato_fail "env_file $potato_file: line $potato_number is not KEY=VALUE"
      ;;
  esac
  export "${potato_line?}"
done < "$potato_file"
unset potato_line

# model_training.backends.gpu.num_threads
export OMP_NUM_THREADS='8'
export MKL_NUM_THREADS='8'
export OPENBLAS_NUM_THREADS='8'

# model_training.backends.gpu.gpus
export CUDA_DEVICE_ORDER='PCI_BUS_ID'
export CUDA_VISIBLE_DEVICES='0,1'
export POTATO_TRAINING_INHERIT=yes # the worker gets this environment as it is

# model_training.backends.gpu.prelude: a failing line ends the launch
potato_prelude_failed() { # CODE
  [ "$BASH_SUBSHELL" -eq 0 ] || return "$1"
  exec >&4
  potato_line=$(command -p sed -n "${BASH_LINENO[${#BASH_LINENO[@]} - 2]}p" -- "$0")
  potato_fail "prelude failed (exit $1): ${potato_line:-$BASH_COMMAND}"
}
trap 'potato_prelude_failed "$?"' ERR
exec >&2
set -eE
# shellcheck source=/dev/null
source /opt/conda/etc/profile.d/conda.sh
conda activate train
set +eEu
trap - ERR
umask 077
exec <&3 >&4 3<&- 4>&- || potato_prelude_failed "$?"

# The agent reads the next line of stdin, its socket and token; the end of stdin is a hint to look up.
potato_python="$HOME"/'potato runs/training/venvs/d16530f3481b3dfcf1dbcfb16ac2c34c/bin/python'
command -v -- "$potato_python" > /dev/null || potato_fail "$potato_python was not found on $(uname -n)"
cd -- "$potato_job" || potato_fail "$(uname -n) cannot enter $potato_job"
export PYTHONPATH="code${PYTHONPATH:+:$PYTHONPATH}"
printf '%s end 0\n' "$potato_mark"
exec "$potato_python" -m potato_training.worker.agent --job-dir "$PWD"
START
command -v bash > /dev/null || potato_fail "prelude needs bash, which was not found on $(uname -n)"
exec bash -l "$potato_job/start.sh" "$potato_mark" "$potato_job" 3<&0 4>&1 < /dev/null >&2
