"""Runs every scenario that the Python SDK can do, with its blocking clients (main.py sync) or its
asynchronous ones (main.py aio), and prints one line for each:
scenario <tab> id <tab> pass|fail|skip <tab> milliseconds <tab> text"""

import asyncio
import importlib.util
import os
import sys
from concurrent.futures import ThreadPoolExecutor

import azure.servicebus

import administration
import large
import ordering
import receiving
import sending
import sessions
import settling
import topics
from env import Env
from runner import Told, chosen, listed, say

# What waits for a lock is cheap, so many scenarios run at once.
AT_ONCE = 10
MODULES = (sending, receiving, settling, sessions, ordering, large, administration, topics)
LIMIT = float(os.environ.get("BUSBAR_LIMIT", "90"))  # seconds for one scenario


async def run(scenario, function, index, mode):
    env = Env(scenario, index, mode)
    with Told(scenario):
        try:
            await asyncio.wait_for(function(env), LIMIT)
        finally:
            await env.close()


def prepare():
    """Sets up the C library of versions before 7.9. Their clients do it at first use without a lock, and a second
    set-up fails."""
    if importlib.util.find_spec("uamqp"):
        import uamqp
        uamqp._Platform.initialize()


async def main(mode):
    prepare()
    # Each blocking call has a thread of its own.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(8 * AT_ONCE))
    say("sdk", "azure-servicebus" + (" (aio)" if mode == "aio" else ""), azure.servicebus.__version__)
    todo = chosen(MODULES)
    slots = asyncio.Semaphore(AT_ONCE)

    async def guarded(index, scenario, function):
        async with slots:
            await run(scenario, function, index, mode)

    await asyncio.gather(*(guarded(i, k, f) for i, (k, f) in enumerate(todo.items())))
    say("end", len(todo))
    if importlib.util.find_spec("uamqp"):  # its clients crash when the interpreter frees them at its end
        sys.stdout.flush()
        os._exit(0)


if __name__ == "__main__":
    if not listed(MODULES):
        asyncio.run(main(sys.argv[1]))
