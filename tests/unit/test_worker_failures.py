"""From an exception to one line and an exit code."""

import socket

import pytest
from potato_training.worker import failures
from potato_training.worker.failures import explain
from potato_training.worker.trainers.base import TrainerInfo

NVRTC = ("nvrtc: error: failed to open libnvrtc-builtins.so.13.0.\n  Make sure that libnvrtc-builtins.so.13.0 is "
         "installed correctly.\n\n")


class OutOfMemoryError(RuntimeError):
    """As torch names its own."""


@pytest.mark.parametrize(("error", "code", "exit_code", "message"), [
    (RuntimeError(NVRTC), "nvrtc", 1, "nvrtc: error: failed to open libnvrtc-builtins.so.13.0"),
    (RuntimeError("CUDA error: no kernel image is available for execution on the device\nmore"), "no_kernels", 1,
     "This host's torch has no kernels for any of its GPUs"),
    (OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB"), "gpu_out_of_memory", 5,
     "GPU out of memory: lower batch_size or max_length"),
    (RuntimeError("MPS backend out of memory (MPS allocated: 9 GB)"), "gpu_out_of_memory", 5,
     "GPU out of memory: lower batch_size or max_length"),
    (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), "gpu_out_of_memory", 5,
     "GPU out of memory: lower batch_size or max_length"),
    (MemoryError(), "out_of_memory", 5, "host out of memory: the worker could not get more"),
    (RuntimeError("[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried "
                  "to allocate 99 bytes."), "out_of_memory", 5, "host out of memory: the worker could not get more"),
    (RuntimeError("DataLoader worker (pid 12) is killed by signal: Killed."), "out_of_memory", 5,
     "host out of memory: a helper process was killed"),
    (ModuleNotFoundError("No module named 'peft'"), "missing_dependency", 3,
     "Trainer 'x' could not be imported: No module named 'peft'"),
    (ImportError("libcudart.so.12: cannot open shared object file"), "missing_dependency", 3,
     "Trainer 'x' could not be imported: libcudart.so.12: cannot open shared object file"),
    (ValueError("first\nsecond"), "trainer_error", 1, "ValueError: first"),
    (KeyError(), "trainer_error", 1, "KeyError"),
])
def test_an_exception_is_explained(error, code, exit_code, message):
    found = explain(error, "x", "pip install it")
    assert (found.code, found.exit_code, found.message) == (code, exit_code, message)
    if code == "missing_dependency":
        assert found.hint == "pip install it"
    elif code != "trainer_error":
        assert found.hint


@pytest.mark.parametrize("error", [
    OSError(28, "No space left on device"), OSError(122, "Disk quota exceeded"),
    RuntimeError('Error while serializing: I/O error: No space left on device (os error 28)'),
])
def test_a_full_disk_names_host_and_directory(error, tmp_path):
    found = explain(error, "x", directory=str(tmp_path))
    assert found.message == f"no space or quota left on {socket.gethostname()}:{tmp_path}"
    assert found.code == "disk_full" and found.exit_code == 1


@pytest.mark.parametrize("error", [
    OSError(27, "File too large"), RuntimeError("Error while serializing: I/O error: File too large (os error 27)")])
def test_a_file_size_limit_is_no_full_disk(error, tmp_path):
    found = explain(error, "x", directory=str(tmp_path))
    assert found.message == f"a file grew over the file size limit (ulimit -f) in {socket.gethostname()}:{tmp_path}"
    assert "free some space" not in found.hint


def test_a_label_in_a_message_is_on_one_line_and_short():
    assert failures.quoted("pizza") == '"pizza"'
    assert failures.quoted('a "b"\nc') == '"a \\"b\\"\\nc"'
    assert len(failures.quoted("x" * 5000)) < 100


def test_an_error_of_ours_is_left_as_it_is():
    error = failures.TrainerError("a", "b")
    assert explain(error) is error


def test_cancelled_is_not_swallowed_by_a_broad_except():
    assert not issubclass(failures.Cancelled, Exception)


@pytest.mark.parametrize(("executable", "hint", "shown"), [
    ("/a b/python", "pip install x", "'/a b/python' -m pip install x"),
    ("/a/python", "ask your admin", "ask your admin"), ("/a/python", "", ""), ("", "pip install x", "pip install x"),
])
def test_an_install_line_names_the_interpreter_that_lacks_it(executable, hint, shown):
    info = TrainerInfo("x", "", "", ("nominal",), ("a",), install_hint=hint)
    assert info.install_line(executable) == shown
