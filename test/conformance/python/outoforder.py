"""Shows that the blocking clients of azure-servicebus 7.14 and 7.15 may put the frames of a message together in another
order than they came in (docs/compatibility.md). Their keep-alive thread reads frames of the same connection as the
caller. The lock of the socket covers the reading of a frame and not what is done with it after that.

    python outoforder.py CONNECTION_STRING QUEUE [natural]

The queue takes 10 MB and is empty. Each 8 bytes of the body hold their own number, so it shows which are elsewhere.
Without "natural" the keep-alive thread pauses for 50 ms between the reading of a frame and its use, as a busy machine
makes it pause, and runs every second instead of every 30 s. With "natural" it only runs every second: then 1 of 300
receptions was wrong, of a body of 60 MB in place of 8 here."""

import array
import sys
import threading
import time

import azure.servicebus
from azure.servicebus import ServiceBusMessage
from azure.servicebus._pyamqp import _connection, _transport
from azure.servicebus._pyamqp._decode import decode_frame

TRANSFER = 0x14
BODY = array.array("Q", range(8 << 17)).tobytes()  # 8 MiB
FRAME_PAUSE = 0.02  # between frames of the caller, so that the message takes longer than the keep-alive's second
wire, order = [], threading.Lock()


def keeps_alive():
    return threading.current_thread().name.endswith("(_keep_alive)")


def tap(cls, natural):
    """Writes down the transfers in the order in which they are read from the socket."""
    read, process = cls.read, _connection.Connection._process_incoming_frame

    def tapped(self, *args, **kw):
        with order:
            got = read(self, *args, **kw)
            if got[2] is not None and len(got[2]) > 2 and got[2][2] == TRANSFER:
                wire.append((keeps_alive(), bytes(got[2])))
            return got

    def slow(self, *args, **kw):
        time.sleep(0.05 if keeps_alive() else FRAME_PAUSE)
        return process(self, *args, **kw)
    cls.read = tapped
    if not natural:
        _connection.Connection._process_incoming_frame = slow


def runs(body):
    """The stretches of body that are elsewhere: where they stand, how long they are, and where they belong."""
    got, at = array.array("Q", body), 0
    while at < len(got):
        if got[at] == at:
            at += 1
            continue
        start, shift = at, got[at] - at
        while at < len(got) and got[at] - at == shift:
            at += 1
        yield 8 * start, 8 * (at - start), 8 * (start + shift)


def main(connection, queue, natural):
    tap(_transport._AbstractTransport, natural)
    client = azure.servicebus.ServiceBusClient.from_connection_string(connection, keep_alive=1)
    with client, client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        sender.send_messages(ServiceBusMessage(BODY))
        wrong = 0
        for number in range(200 if natural else 5):
            wire.clear()
            message, = receiver.receive_messages(1, max_wait_time=60)
            body = b"".join(message.body)
            sent = b"".join(bytes(decode_frame(memoryview(frame))[1][11]) for _, frame in wire)
            print(f"message {number}: the body is {'good' if body == BODY else 'wrong'}, what came is "
                  f"{'good' if BODY in sent else 'wrong'}; {sum(alive for alive, _ in wire)} of {len(wire)} frames "
                  "were read by the keep-alive thread")
            if body != BODY:
                wrong += 1
                for at, size, of in runs(body):
                    print(f"    {size} bytes at {at} belong to {of}")
            receiver.abandon_message(message)
        print(f"{wrong} bodies are wrong")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:] == ["natural"])
