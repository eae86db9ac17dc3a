"""The tasks, and how an application configures Celery for the original."""

import os
import time

from celery import Celery

DONE = os.environ.get("TASKS_DONE", "")

app = Celery("tasks", broker="azureservicebus://{}:{}@busbar-tests".format(
    os.environ["BUSBAR_KEY_NAME"], os.environ["BUSBAR_KEY"]))
app.conf.update(
    broker_transport_options={"queue_name_prefix": os.environ.get("TASKS_PREFIX", ""), "wait_time_seconds": 2,
                              "peek_lock_seconds": 10, "use_lock_renewal": True},
    worker_enable_remote_control=False, worker_prefetch_multiplier=1, task_ignore_result=True,
    broker_connection_retry_on_startup=True, worker_send_task_events=False)


def done(*words):
    with open(DONE, "a") as f:
        f.write(" ".join(str(w) for w in words) + "\n")


@app.task
def add(x, y):
    done("add", x + y)


@app.task(bind=True, max_retries=3)
def flaky(self):
    done("flaky", self.request.retries)
    if self.request.retries < 2:
        raise self.retry(countdown=1)


@app.task(acks_late=True)
def slow(seconds):
    """Longer than its lock, which the transport renews."""
    done("slow begins")
    time.sleep(seconds)
    done("slow ends")


@app.task(acks_late=True, reject_on_worker_lost=True)
def held():
    done("held by", os.getpid())
    while not os.path.exists(DONE + ".go"):
        time.sleep(0.1)
    done("held ends")
