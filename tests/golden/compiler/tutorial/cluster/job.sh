#!/bin/bash -l
# potato-training 1.2.3: run example on backend cluster
# config sha256 db5c853928cc3ba0a2f7776cb5950c8853cc93112a4b58136f21e8e94b96b5d4
#SBATCH --job-name=potato-example
#SBATCH --output=slurm.out
#SBATCH --no-requeue
#SBATCH --export=ALL
# model_training.backends.cluster: gres, time
#SBATCH --gres=gpu:1
#SBATCH --time=04:00:00

set +euC # whatever a startup file has set
# What Slurm has told this job, as it was before the login shell's startup files: those may have set the same names.
if [ -r "/proc/$$/environ" ]; then
  unset SLURM_RESTART_COUNT
  while IFS= read -r -d '' potato_line; do
    case $potato_line in
      SLURM_JOB_ID=* | SLURM_JOBID=* | SLURM_RESTART_COUNT=* | SLURM_SUBMIT_DIR=* | SLURMD_NODENAME=* | \
        CUDA_VISIBLE_DEVICES=*) export "${potato_line?}" ;;
    esac
  done < "/proc/$$/environ"
  unset potato_line
fi

# The job directory is where sbatch was called; what is made in it is for its owner alone.
umask 077
cd -- "${SLURM_SUBMIT_DIR:-.}" || exit 1
potato_dir=$PWD
case ${SLURM_RESTART_COUNT:-0} in
  0) potato_exit_code=$potato_dir/exit_code ;;
  *) potato_exit_code=$potato_dir/exit_code.$SLURM_RESTART_COUNT ;;
esac

# The last act: the exit code, under another name first, so that no reader sees half of it.
potato_verdict() { # CODE
  potato_done=yes
  printf '%s\n' "$1" > "$potato_exit_code.tmp" && command -p mv -f -- "$potato_exit_code.tmp" "$potato_exit_code"
}
potato_fail() { # MESSAGE [CODE]
  printf 'potato-training: %s\n' "$1" >> "$potato_dir/stderr.log"
  potato_verdict "${2:-1}"
  exit "${2:-1}"
}

# One job per directory: a twin ends without touching anything; the same job, requeued, goes on.
potato_job=${SLURM_JOB_ID:-none}
if mkdir claim 2> /dev/null; then
  printf '%s\n' "$potato_job" > claim/job
elif [ ! -d claim ]; then
  echo "potato-training: $HOSTNAME cannot write to $potato_dir"
  exit 1
elif [ "$(cat claim/job 2> /dev/null)" != "$potato_job" ]; then
  echo "potato-training: $potato_dir belongs to job $(cat claim/job 2> /dev/null); job $potato_job leaves it alone"
  exit 0
fi
exec 2>> stderr.log
trap 'potato_fail "the job was stopped before the worker started" 4' TERM

# Shared storage may show late what the login node wrote last.
potato_waited=0
until [ -e spec.json ] && [ -e job.sh ] || [ "$potato_waited" -ge 120 ]; do
  sleep 1
  ls > /dev/null
  potato_waited=$((potato_waited + 1))
done

# The login shell's; what env and prelude set stays.
unset PYTHONPATH PYTHONHOME VIRTUAL_ENV CONDA_PREFIX CONDA_DEFAULT_ENV CONDA_SHLVL

# model_training.backends.cluster.prelude: a failing line ends the job
potato_prelude_failed() { # CODE
  [ "$BASH_SUBSHELL" -eq 0 ] || return "$1"
  [ -z "$potato_done" ] || return "$1"
  potato_line=$(command -p sed -n "${BASH_LINENO[${#BASH_LINENO[@]} - 2]}p" -- "$0")
  case ${BASH_SOURCE[1]} in
    # a login shell's `exit` reads that file, and what fails in there is not the prelude
    */.bash_logout) potato_fail "prelude failed: it ended the job at: $potato_line" ;;
  esac
  potato_fail "prelude failed (exit $1): ${potato_line:-$BASH_COMMAND}"
}
potato_done=
trap 'potato_prelude_failed "$?"' ERR
trap 'potato_code=$? potato_line="it ended the job at: $BASH_COMMAND"
  if [ "$potato_code" -ne 0 ] && command -p grep -Eq "syntax error|unexpected EOF" "$potato_dir/stderr.log"; then
    potato_line="bash cannot parse it"
  fi
  [ -n "$potato_done" ] || potato_fail "prelude failed (exit $potato_code): $potato_line"' EXIT
set -eE
module load cuda/12.4
set +eEuC
trap - ERR
trap 'potato_fail "the job was stopped before the worker started" 4' TERM
umask 077
cd -- "$potato_dir" || potato_prelude_failed "$?"

# model_training.backends.cluster.job_python: looked for, since an old `module load` fails with 0
potato_python='/shared/envs/train/bin/python'
potato_node=${SLURMD_NODENAME:-$HOSTNAME}
command -v -- "$potato_python" > /dev/null || potato_fail "$potato_python was not found on $potato_node" 3
"$potato_python" -c 'import sys; sys.exit(sys.version_info < (3, 8))' ||
  potato_fail "$potato_python on $potato_node does not run, or is older than Python 3.8" 3

# The worker is a child: a shell that dies of SIGTERM takes the step down before the worker has saved anything
# (seen on Slurm 22.05). The signal is passed on, and the worker's own exit code waited for. It is noted by a shell
# that has nothing else to do: bash gives -1 for a child that ends just when a signal ends `wait` (seen with 5.2).
rm -f worker.pid worker.code
potato_signalled=
potato_stop() {
  potato_signalled=yes
  [ ! -s worker.pid ] || kill -TERM "$(cat worker.pid)" 2> /dev/null
}
trap potato_stop TERM
(
  trap : TERM
  (
    printf '%s\n' "$BASHPID" > worker.pid.tmp && command -p mv -f worker.pid.tmp worker.pid
    export PYTHONPATH="code${PYTHONPATH:+:$PYTHONPATH}"
    exec "$potato_python" -m potato_training.worker --spec spec.json < /dev/null >> events.jsonl 2>> stderr.log
  )
  printf '%s\n' "$?" > worker.code.tmp && command -p mv -f worker.code.tmp worker.code
) &
potato_keeper=$!
until [ -s worker.pid ] || ! kill -0 "$potato_keeper" 2> /dev/null; do sleep 0.05; done
[ -z "$potato_signalled" ] || potato_stop # it came while the worker was being started
while :; do
  potato_signalled=
  wait "$potato_keeper"
  potato_code=$?
  [ -n "$potato_signalled" ] || break # a signal ends `wait` while the worker is still at work
done
[ ! -s worker.code ] || potato_code=$(cat worker.code)
[ "$potato_code" -ge 0 ] || potato_code=143
potato_verdict "$potato_code"
exit "$potato_code"
