"""The words that the server, the agent and the worker share.

Names of routes, files, states, events and exit codes, and the bounds that both ends of the agent
protocol keep; the only thing done here is cutting an event to its bound. Times are seconds, sizes
are bytes.
"""

import json

PROTOCOL = 1
API_PREFIX = "/api/training/v1"

# --- a run's life -----------------------------------------------------------------------------

QUEUED = "queued"
BUILDING = "building"
CONNECTING = "connecting"
PREPARING = "preparing"
WAITING = "waiting"
RUNNING = "running"
EVALUATING = "evaluating"
FETCHING = "fetching"
CANCELLING = "cancelling"
SUCCEEDED = "succeeded"
FAILED = "failed"
CANCELLED = "cancelled"

#: A run's position is (attempt, index in this tuple) and only ever grows, whatever order news
#: comes in. The three ends share the last place: the first of them stays.
STATES = (
    QUEUED, BUILDING, CONNECTING, PREPARING, WAITING, RUNNING, EVALUATING, FETCHING, CANCELLING,
    SUCCEEDED, FAILED, CANCELLED,
)
ENDS = frozenset({SUCCEEDED, FAILED, CANCELLED})
#: States that the far side may name in a status event; the others are the supervisor's to give.
REPORTABLE_STATES = frozenset({PREPARING, WAITING, RUNNING, EVALUATING})

# --- the worker's exit codes -------------------------------------------------------------------

EXIT_OK = 0
EXIT_TRAINER_ERROR = 1
EXIT_BAD_SPEC = 2
EXIT_MISSING_DEPENDENCY = 3
EXIT_CANCELLED = 4
EXIT_OUT_OF_MEMORY = 5

# --- events ------------------------------------------------------------------------------------

EVENT_VERSION = 1
EVENT_KINDS = ("status", "progress", "metric", "log", "artifact", "result", "error")
#: The two event streams of a job, each with its own sequence numbers.
STREAM_WORKER = "worker"
STREAM_AGENT = "agent"
STREAMS = (STREAM_WORKER, STREAM_AGENT)
#: The number of a stream's first event: seq counts the lines of events.jsonl (agent.jsonl) from here.
FIRST_SEQ = 0
MAX_EVENT_BYTES = 64 * 1024
MAX_EVENTS_PER_BATCH = 10_000
#: A batch of events in one request: far above 10,000 ordinary events, far below a server's memory.
MAX_BATCH_BYTES = 8 * 1024 * 1024
#: Claim, result and other small JSON bodies.
MAX_MESSAGE_BYTES = 256 * 1024

# --- the job directory: the state of a job on the training machine -------------------------------

JOB_FILE = "job.json"                #: the claimed job message
ATTACH_FILE = "attach.json"          #: {"socket", "generation", "token"}: how to reach the server now
AGENT_LOCK = "agent.lock"            #: flock held by the job's agent for its life
WORKER_FILE = "worker.json"          #: {"pid", "pgid", "start", "host"}: tells the worker from a reused pid
WORKER_STDIN = "stdin"               #: the fifo that is the worker's stdin: EOF while no agent holds it open
STOP_FILE = "stop.json"              #: {"reason", "message"}: why the agent asked the worker to stop
SPEC_FILE = "spec.json"
BUNDLE_ARCHIVE = "bundle.tar.gz"
BUNDLE_DIR = "bundle"
EVENTS_FILE = "events.jsonl"         #: the worker's stream, one JSON object a line
AGENT_EVENTS_FILE = "agent.jsonl"    #: the agent's stream
CONTROL_FILE = "control"             #: one of the CONTROL words, replaced by the agent, read by the worker
LEASE_FILE = "lease"                 #: rewritten by the agent every 15 s (slurm)
STDERR_FILE = "stderr.log"
AGENT_STDERR_FILE = "agent.err"         #: what an agent said after its login had ended
EXIT_CODE_FILE = "exit_code"         #: written by rename; exit_code.<n> from the first scheduler restart on
PREDICTIONS_FILE = "predictions.jsonl"
ARTIFACTS_DIR = "artifacts"
CHECKPOINTS_DIR = "checkpoints"

CONTROL_RUN = "run"
CONTROL_KEEP = "keep"                #: end training at the next batch, keep the best model, predict, succeed
CONTROL_STOP = "stop"                #: cancel

# --- the result that ends a job ------------------------------------------------------------------

#: ``reason`` of a result, in the agent's words; the verdict is the server's.
REASON_FINISHED = "finished"         #: the worker ended by itself; its exit code says how
REASON_CANCELLED = "cancelled"       #: the server asked for it
REASON_MAX_WALL = "max-wall"         #: max_wall_seconds from the worker's first event
REASON_GAVE_UP = "gave-up"           #: no answered request for give_up_s
REASON_GONE = "gone"                 #: the server said 410: the run was over there before it was here
REASON_AGENT_STOPPED = "agent-stopped"  #: somebody sent the agent SIGTERM or Ctrl-C
REASON_WORKER_LOST = "worker-lost"   #: neither a process nor an exit code is left
REASON_START_FAILED = "start-failed"  #: the worker could not be started
REASON_BUNDLE = "bundle"             #: the bundle could not be had whole
REASON_PREDICTIONS_TOO_LARGE = "predictions-too-large"  #: 413
REASON_PREDICTIONS_REFUSED = "predictions-refused"      #: the server would not have them
REASON_PROTOCOL = "protocol"         #: a job message that this agent does not understand

# --- bounds -------------------------------------------------------------------------------------

GRACE_SECONDS = 20.0                 #: of a job that carries none
HEARTBEAT_TIMEOUT_S = 120.0
HEARTBEAT_S = 5.0                    #: an agent with nothing to say still reports this often
POLL_INTERVAL_S = 30.0               #: between two questions to a scheduler
FIRST_EVENT_S = 600.0                #: from the worker's start to its first event, on a slow file system
AGENT_GIVE_UP_S = 300.0              #: an agent-backend agent without a server cancels its run after this
BUNDLE_ATTEMPTS = 5
TAIL_BYTES = 64 * 1024               #: of slurm.out and stderr.log that always come along


def cut_event(event, limit=MAX_EVENT_BYTES):
    """The event itself when its JSON has at most ``limit`` bytes, else a shorter one with ``"cut": true``.

    Long texts go first, then everything that is no plain value: what a result must say (its status, the
    digest of the predictions) is short and stays.
    """
    if _size(event) <= limit:
        return event
    shorter = {name: _clip(value) for name, value in event.items()}
    shorter["cut"] = True
    if _size(shorter) <= limit:
        return shorter
    plain = {"cut": True}
    for name, value in shorter.items():
        if not isinstance(value, (dict, list)) and len(name) <= 100 and len(plain) < 50:
            plain[name] = value
    return plain


def _size(value):
    return len(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


def _clip(value, longest=1000):
    if isinstance(value, str):
        return value if len(value) <= longest else value[:longest] + "..."
    if isinstance(value, list):
        return [_clip(item) for item in value]
    if isinstance(value, dict):
        return {key: _clip(item) for key, item in value.items()}
    return value
