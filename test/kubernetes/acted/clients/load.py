"""A load of the official library, with the retries that it has by default. It tells on standard output what its clients
did, a line each, and obeys "stop" (senders end) and "end" (all ends) on standard input. foreign.go has the words."""

import os
import sys
import threading
import time

from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import (OperationTimeoutError, ServiceBusConnectionError, SessionCannotBeLockedError,
                                         SessionLockLostError)

NAME, PLAIN, ORDERED = (os.environ[k] for k in ("LOAD_NAME", "LOAD_PLAIN", "LOAD_ORDERED"))
WORKERS, PAUSE = int(os.environ["LOAD_WORKERS"]), int(os.environ["LOAD_PAUSE_MS"]) / 1000
# What a holder hears when the link of its session is gone, and the lock with it.
LOST = (SessionLockLostError, SessionCannotBeLockedError, ServiceBusConnectionError)

stop, end, words = threading.Event(), threading.Event(), threading.Lock()


def say(*fields):
    with words:
        print(*(" ".join(str(f).split()) for f in fields), sep="\t", flush=True)


def client():
    return ServiceBusClient.from_connection_string(os.environ["SERVICEBUS_CONNECTION_STRING"],
                                                   connection_verify=os.environ["LOAD_CA"])


def produce(queue, series, session):
    with client() as c, c.get_queue_sender(queue) as sender:
        n = 0
        while not stop.wait(PAUSE):
            n += 1
            body = f"{series} {n}"
            try:
                sender.send_messages(ServiceBusMessage(body, message_id=body, session_id=series if session else None))
                say("sent", queue, body)
            except Exception as err:
                say("unsent", queue, body)
                say("failed", "send", repr(err))


def settle(receiver, queue, got):
    for m in got:
        body = str(m)
        say("received", queue, body, m.sequence_number)
        try:
            receiver.complete_message(m)
            say("done", queue, body)
        except LOST as err:
            if queue == ORDERED:
                raise
            say("failed", "complete", repr(err))
        except Exception as err:
            say("failed", "complete", repr(err))


def consume():
    with client() as c, c.get_queue_receiver(PLAIN) as receiver:
        while not end.is_set():
            try:
                # The library ends a call that has max_wait_time with an error, if a pause before a retry does not fit in.
                settle(receiver, PLAIN, receiver.receive_messages(max_message_count=10))
            except Exception as err:
                say("failed", "receive", repr(err))
                end.wait(0.1)


def hold():
    """Accepts the next session over and over, takes what it has, and gives it back."""
    with client() as c:
        while not end.is_set():
            try:
                with c.get_queue_receiver(ORDERED, session_id=NEXT_AVAILABLE_SESSION) as receiver:
                    for _ in range(25):
                        got = receiver.receive_messages(max_message_count=1, max_wait_time=2)
                        if not got:
                            break
                        settle(receiver, ORDERED, got)
            except OperationTimeoutError:
                pass
            except LOST:
                say("note", "sessions that ended with their links")
            except Exception as err:
                say("failed", "hold a session", repr(err))
                end.wait(0.1)


makers = [threading.Thread(target=produce, args=(q, f"{NAME}-{k}-{i}", s), daemon=True)
          for i in range(WORKERS) for q, k, s in ((PLAIN, "series", False), (ORDERED, "session", True))]
takers = [threading.Thread(target=f, daemon=True) for _ in range(WORKERS) for f in (consume, hold)]
for w in makers + takers:
    w.start()
say("note", "runs")
for line in sys.stdin:
    if line.strip() == "stop":
        stop.set()
        for w in makers:
            w.join()
        say("stopped")
    else:
        break
end.set()
stop.set()
time.sleep(3)  # what is under way may end
with words:
    sys.stdout.flush()
    os._exit(0)  # an accept may wait for a minute, and a receive for ever
