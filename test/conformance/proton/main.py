"""Runs the scenarios of plain AMQP 1.0 with Qpid Proton and prints one line for each:
scenario <tab> id <tab> pass|fail|skip <tab> milliseconds <tab> text"""

import os
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor

import proton

import common
import delivering
import links
import passing
import sessions
import topics
from env import Env, Skip, hold

# What waits for a lock is cheap, so several scenarios run at once.
AT_ONCE = 8

said = threading.Lock()


def say(*fields):
    line = "\t".join(" ".join(str(f).split()) for f in fields)
    with said:
        print(line, flush=True)


def story(err):
    """The error, and the lines of the scenario that led to it."""
    here = os.path.dirname(os.path.abspath(__file__))
    lines = [f"{os.path.basename(f.filename)}:{f.lineno}" for f in traceback.extract_tb(err.__traceback__)
             if f.filename.startswith(here)]
    return f"{type(err).__name__}: {err} at {' '.join(lines)}"


def run(scenario, function, index):
    env = Env(scenario, index)
    began = time.monotonic()
    state, text = "pass", ""
    try:
        function(env)
    except Skip as why:
        state, text = "skip", str(why)
    except BaseException as err:  # whatever it is, it is told
        state, text = "fail", story(err)
    finally:
        env.close()
    say("scenario", scenario, state, int(1000 * (time.monotonic() - began)), text)


def main():
    say("sdk", "python3-qpid-proton", ".".join(str(n) for n in proton.VERSION))
    todo = {}
    for module in (common, delivering, links, passing, sessions, topics):
        todo.update(module.SCENARIOS)
    only = os.environ.get("BUSBAR_ONLY", "").split()
    if only:
        todo = {k: f for k, f in todo.items() if k in only}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for index, (scenario, function) in enumerate(todo.items()):
            pool.submit(run, scenario, function, index)
    say("end", len(todo))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--hold"]:
        hold(sys.argv[2])
    main()
