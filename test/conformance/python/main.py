"""Runs every scenario that the Python SDK can do, with its blocking clients (main.py sync) or its
asynchronous ones (main.py aio), and prints one line for each:
scenario <tab> id <tab> pass|fail|skip <tab> milliseconds <tab> text"""

import asyncio
import os
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor

import azure.servicebus

import administration
import receiving
import sending
import sessions
import settling
import topics
from env import Env, Skip

# What waits for a lock is cheap, so many scenarios run at once.
AT_ONCE = 10
LIMIT = 90  # seconds for one scenario


def say(*fields):
    print("\t".join(" ".join(str(f).split()) for f in fields), flush=True)


def story(err):
    """The error, and the lines of the scenario that led to it."""
    here = os.path.dirname(os.path.abspath(__file__))
    lines = [f"{os.path.basename(f.filename)}:{f.lineno}" for f in traceback.extract_tb(err.__traceback__)
             if f.filename.startswith(here)]
    return f"{type(err).__name__}: {err} at {' '.join(lines)}"


async def run(scenario, function, index, mode):
    env = Env(scenario, index, mode)
    began = time.monotonic()
    state, text = "pass", ""
    try:
        await asyncio.wait_for(function(env), LIMIT)
    except Skip as why:
        state, text = "skip", str(why)
    except BaseException as err:  # whatever it is, it is told
        state, text = "fail", story(err)
    finally:
        await env.close()
    say("scenario", scenario, state, int(1000 * (time.monotonic() - began)), text)


async def main(mode):
    # Each blocking call has a thread of its own.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(8 * AT_ONCE))
    say("sdk", "azure-servicebus" + (" (aio)" if mode == "aio" else ""), azure.servicebus.__version__)
    todo = {}
    for module in (sending, receiving, settling, sessions, administration, topics):
        todo.update(module.SCENARIOS)
    only = os.environ.get("BUSBAR_ONLY", "").split()
    if only:
        todo = {k: f for k, f in todo.items() if k in only}
    slots = asyncio.Semaphore(AT_ONCE)

    async def guarded(index, scenario, function):
        async with slots:
            await run(scenario, function, index, mode)

    await asyncio.gather(*(guarded(i, k, f) for i, (k, f) in enumerate(todo.items())))
    say("end", len(todo))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
