"""Sends tasks and starts workers as an application does; one line for each scenario."""

import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid

DIR = tempfile.mkdtemp()
os.environ["TASKS_DONE"] = DONE = os.path.join(DIR, "done")
os.environ["TASKS_PREFIX"] = "celery-" + uuid.uuid4().hex[:8] + "-"

import celery  # noqa: E402
import tasks  # noqa: E402

LIMIT = 90  # seconds to wait for what must be done


def lines():
    try:
        with open(DONE) as f:
            return f.read().splitlines()
    except FileNotFoundError:
        return []


def until(what, check):
    end = time.monotonic() + LIMIT
    while not check():
        if time.monotonic() > end:
            raise AssertionError(f"waited in vain: {what}; done are {lines()}")
        time.sleep(0.1)


def worker(name):
    """A worker with one process of its own, and its log."""
    log = open(os.path.join(DIR, name + ".log"), "w")
    return subprocess.Popen(
        [sys.executable, "-m", "celery", "-A", "tasks", "worker", "-P", "solo", "-n", name + "@h", "-l", "INFO",
         "--without-gossip", "--without-mingle", "--without-heartbeat"],
        stdout=log, stderr=subprocess.STDOUT, cwd=os.path.dirname(os.path.abspath(__file__)))


def celery_tasks():
    w = worker("first")
    try:
        for i in range(20):
            tasks.add.delay(i, i)
        until("twenty sums", lambda: len([x for x in lines() if x.startswith("add")]) >= 20)
        assert sorted(int(x.split()[1]) for x in lines() if x.startswith("add")) == [2 * i for i in range(20)]
        tasks.flaky.delay()
        until("three tries", lambda: "flaky 2" in lines())
        assert [x for x in lines() if x.startswith("flaky")] == ["flaky 0", "flaky 1", "flaky 2"]
        began = time.time()
        tasks.add.apply_async((50, 50), countdown=3)
        until("a task that comes later", lambda: "add 100" in lines())
        assert time.time() - began >= 3, "came too early"
        tasks.slow.delay(15)
        until("a long task", lambda: "slow ends" in lines())
        assert lines().count("slow begins") == 1, "a long task was done twice"
    finally:
        w.terminate()
        w.wait(30)


def celery_lost_worker():
    w = worker("doomed")
    tasks.held.delay()
    until("the task is begun", lambda: any(x.startswith("held by") for x in lines()))
    w.send_signal(signal.SIGKILL)
    w.wait()
    open(DONE + ".go", "w").close()
    heir = worker("heir")
    try:
        until("the task is done by another worker", lambda: "held ends" in lines())
        holders = [x for x in lines() if x.startswith("held by")]
        assert len(holders) == 2 and len(set(holders)) == 2, holders
    finally:
        heir.terminate()
        heir.wait(30)


def main():
    print("sdk", "celery", celery.__version__, sep="\t", flush=True)
    for scenario, run in (("celery-tasks", celery_tasks), ("celery-lost-worker", celery_lost_worker)):
        began = time.monotonic()
        state, text = "pass", ""
        try:
            run()
        except BaseException as err:  # whatever it is, it is told
            logs = [open(os.path.join(DIR, f)).read()[-1500:] for f in sorted(os.listdir(DIR)) if f.endswith(".log")]
            state, text = "fail", " ".join(f"{type(err).__name__}: {err} {logs}".split())
        print("scenario", scenario, state, int(1000 * (time.monotonic() - began)), text, sep="\t", flush=True)
    print("end", 2, sep="\t")


main()
