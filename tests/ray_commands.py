"""Commands on Ray in processes of their own, which tests interrupt and kill."""

import os
import subprocess
import sys
import time
from contextlib import contextmanager, suppress

import psutil

import tiny

MARK = "FFSCOPE_TEST_MARK"


def save_models(tokenizer, folder, names):
    """A folder for each tiny model."""
    for name in names:
        tiny.make(name).save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    return folder


@contextmanager
def command(*words, mark):
    """A command in a process group of its own, as a terminal starts it. What is left of it at the end is killed."""
    process = subprocess.Popen(
        [sys.executable, "-m", "ffscope", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, MARK: mark},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        kill(marked(mark))
        process.wait(30)
        process.stdout.close()


def marked(mark):
    """The processes that a command started, whatever their parents are by now."""
    processes = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                processes.append(process)
    return processes


def workers(processes):
    """Those of some processes that hold a model."""
    return [process for process in processes if _title(process).startswith("ray::Worker")]


def _title(process):
    with suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


def kill(processes):
    for process in processes:
        with suppress(psutil.Error):
            process.kill()


def wait_for(condition, seconds=90.0):
    start = time.monotonic()
    while not condition():
        assert time.monotonic() - start < seconds
        time.sleep(0.05)


def states(folder):
    """The files with the states of a search's shards."""
    return {path.name for path in folder.glob(".triggers/*/states/*.safetensors")}
