#!/bin/sh
# potato-training 1.2.3: run example on backend slurm-least
# config sha256 de5f0c2596e4cb37e86b1ac3bad7161b86621e1f3db78fed6dce50a7207bc416
# Looks at the login node and changes nothing but for making remote_dir and a directory for the socket. stdin: a
# mark, the hash of the code, the directory of the socket or "-", then "test" and job.sh, or "no test".
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

# SBATCH_* of the environment would win over the job's #SBATCH lines, SQUEUE_USERS hides a running job, and
# SCANCEL_PARTITION makes a cancel do nothing, all with exit code 0 (seen on Slurm 22.05).
for potato_name in $(env | sed -n 's/^\(S[A-Z]*_[A-Za-z0-9_]*\)=.*/\1/p'); do
  case $potato_name in
    SLURM_CONF) ;;
    SBATCH_* | SQUEUE_* | SCANCEL_* | SCONTROL_* | SLURM_*) unset "$potato_name" ;;
  esac
done
export LC_ALL=C

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

IFS= read -r potato_code || potato_fail "nobody said which code to look for"
IFS= read -r potato_socket || potato_fail "nobody named a socket"
potato_say host "$(uname -n)"
potato_say home "$HOME"

# model_training.backends.slurm-least.remote_dir
potato_root="$HOME"
mkdir -p -- "$potato_root" && [ -w "$potato_root" ] || potato_fail "$(uname -n) cannot write to $potato_root"
for potato_folder in "$potato_root/code" "$potato_root/jobs" "$potato_root/venvs"; do
  [ ! -d "$potato_folder" ] || potato_private "$potato_folder"
done
potato_say root "$potato_root"
potato_say free_kb "$(df -Pk -- "$potato_root" | awk 'END { print $4 }')"
potato_place=$potato_root/code/$potato_code
! potato_whole "$potato_place" "$potato_place/$potato_code" || potato_say code "$potato_code"
potato_job="$HOME"/'jobs/example'
[ ! -d "$potato_job" ] || potato_say job "$potato_job"

# The private directory of the forwarded socket: ssh makes the socket in it.
case $potato_socket in
  /tmp/p-*/*) potato_fail "no such socket" ;;
  /tmp/p-*) mkdir -m 700 -- "$potato_socket" || potato_fail "$(uname -n) cannot make $potato_socket" ;;
esac

# model_training.backends.slurm-least.python
potato_python='python3'
if command -v -- "$potato_python" > /dev/null &&
  potato_version=$("$potato_python" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])'); then
  potato_say python "$potato_version $(command -v -- "$potato_python")"
fi
if [ -z "${potato_version-}" ] || ! "$potato_python" -c 'import sys; sys.exit(sys.version_info < (3, 8))'; then
  for potato_other in python3 python3.8 python3.9 python3.10 python3.11 python3.12 python3.13 python3.14 \
    "$HOME"/miniconda3/bin/python "$HOME"/anaconda3/bin/python /opt/conda/bin/python3 /usr/local/bin/python3; do
    potato_other=$(command -v -- "$potato_other") || continue
    potato_version=$("$potato_other" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])') || continue
    potato_say other "$potato_version $potato_other"
  done
fi

potato_limited() { # SECONDS COMMAND...: a broken driver or a busy controller can hang a command for good
  if command -v timeout > /dev/null; then
    timeout -k 5 "$@"
  else
    shift
    "$@"
  fi
}
potato_lines() { sed "s/^/$1=/"; } # KEY: each line of stdin

# The scheduler's commands; scontrol need not be there.
for potato_program in sbatch squeue scancel scontrol; do
  potato_say "$potato_program" "$(command -v "$potato_program" || echo absent)"
done
potato_say slurm "$(potato_limited 20 sbatch --version 2> /dev/null)"

# model_training.backends.slurm-least.python: as far as the login node can see
if command -v -- 'python3' > /dev/null; then
  potato_say job_python there
else
  potato_say job_python missing
fi

# The scheduler's own opinion of the very script that a run would submit, and its limits, which that leaves out.
IFS= read -r potato_test || potato_test="no test"
if [ "$potato_test" = test ]; then
  potato_limited 20 scontrol -o show partition 2> /dev/null < /dev/null | potato_lines partition
  potato_errors=$potato_root/test.$$.tmp
  potato_clean() { rm -f -- "$potato_errors"; }
  trap potato_clean EXIT
  trap 'exit 1' HUP INT TERM
  potato_answer=$(cd -- "$potato_root" && potato_limited 60 sbatch --parsable --test-only 2> "$potato_errors")
  potato_say test_code "$?"
  printf '%s\n' "$potato_answer" | potato_lines test_out
  potato_lines test_err < "$potato_errors"
  # An sbatch that does not know --test-only may have submitted it: such a job is cancelled at once. It is told by
  # its name, too, since a site's wrapper may print any number.
  potato_made=
  grep -q ' to start at ' "$potato_errors" || potato_made=$(printf '%s\n' "$potato_answer" |
    sed -n 's/^\(Submitted batch job \)\{0,1\}\([0-9][0-9]*\)\(;[A-Za-z0-9_.-]*\)\{0,1\}$/\2\3/p' | tail -n 1)
  potato_clean
  if [ -n "$potato_made" ]; then
    potato_say test_cancelled "${potato_made%%;*}"
    case $potato_made in
      *\;*) set -- -M "${potato_made#*;}" "${potato_made%%;*}" ;;
      *) set -- "$potato_made" ;;
    esac
    potato_limited 60 scancel --name=potato-example "$@" 2>&1 | potato_lines test_err
  fi
fi
potato_say time "$(date +%s)" # last, so that nothing lies between this and its being read
potato_end 0
