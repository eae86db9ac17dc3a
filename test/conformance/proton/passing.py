"""What messages hold passes unchanged."""

import hashlib
import time
import uuid

from proton import (Array, Data, Message, UNDESCRIBED, byte, char, decimal32, decimal64, decimal128, float32,
                    int32, short, symbol, timestamp, ubyte, uint, ulong, ushort)
from proton.reactor import AtMostOnce

from env import SOON, equal


def round_trip(e, message):
    q = e.queue()
    e.connect(0).sender(q).send(message, timeout=SOON)
    r = e.connect(1).receiver(q)
    m, d = r.one()
    r.accept(d)
    return m


def amqp_presettled_send(e):
    q = e.queue()
    c = e.connect(0)
    s = c.sender(q, options=AtMostOnce())
    for i in range(10):
        s.link.send(Message(body=i))
    c.flush()
    r = e.connect(1).receiver(q)
    equal([m.body for m, _ in r.take(10)], list(range(10)), "arrived")


def amqp_large(e):
    q = e.queue()
    body = hashlib.sha256(b"seed").digest() * (30 << 10)  # 960 KiB, sixty times the frame
    c = e.connect(0, max_frame_size=16 << 10)
    c.sender(q).send(Message(body=body), timeout=SOON)
    m, _ = e.connect(1, max_frame_size=4 << 10).receiver(q).one()
    equal(len(m.body), len(body), "bytes")
    equal(hashlib.sha256(m.body).digest(), hashlib.sha256(body).digest(), "the digest")


def amqp_types(e):
    at = timestamp(1_580_702_706_123)
    properties = {
        "null": None, "bool": True, "ubyte": ubyte(255), "ushort": ushort(65535), "uint": uint(4294967295),
        "ulong": ulong(2**64 - 1), "byte": byte(-128), "short": short(-32768), "int": int32(-2**31),
        "long": -2**63, "float": float32(1.5), "double": 2.25, "char": char("ü"), "timestamp": at,
        "uuid": uuid.UUID("00112233-4455-6677-8899-aabbccddeeff"), "binary": b"\x00\xff", "string": "ü€𝄞",
        "symbol": symbol("sym"), "decimal32": decimal32(7), "decimal64": decimal64(8),
        "decimal128": decimal128(b"0123456789abcdef"),
    }
    body = {"list": [1, "two", None, [3.0]], "map": {"k": symbol("v")}, 5: "key of another type",
            "array": Array(UNDESCRIBED, Data.INT, 1, 2, 3)}
    m = round_trip(e, Message(
        body=body, properties=properties, id=uuid.UUID(int=7), correlation_id=ulong(9), user_id=b"me",
        subject="s", reply_to="rt", content_type="application/x", content_encoding="gzip",
        group_id="g", reply_to_group_id="rg", annotations={symbol("x-mine"): "kept"}))
    equal(m.properties, properties, "application properties")
    for key, value in properties.items():
        equal(type(m.properties[key]), type(value), f"the type of {key}")
    equal(m.body, body, "body")
    equal((m.id, m.correlation_id, m.user_id), (uuid.UUID(int=7), ulong(9), b"me"), "ids")
    equal((m.subject, m.reply_to, m.content_type, m.content_encoding, m.group_id, m.reply_to_group_id),
          ("s", "rt", "application/x", "gzip", "g", "rg"), "properties")
    equal(m.annotations[symbol("x-mine")], "kept", "an annotation of the application")


def send_one(e):
    m = round_trip(e, Message(body="hello", durable=True, priority=7))
    equal((m.body, m.durable, m.priority), ("hello", True, 7), "arrived")


def receive_counts(e):
    before = time.time()
    m = round_trip(e, Message(body="x"))
    a = m.annotations
    equal(a[symbol("x-opt-sequence-number")], 1, "number")
    enqueued, locked = (a[symbol(k)] / 1000 for k in ("x-opt-enqueued-time", "x-opt-locked-until"))
    if not before - 1 <= enqueued <= time.time() + 1 or not 30 < locked - enqueued < 90:
        raise AssertionError(f"enqueued {enqueued}, locked until {locked}")


def schedule_property(e):
    at = timestamp(int(1000 * (time.time() + 3)))
    m = round_trip(e, Message(body="later", annotations={symbol("x-opt-scheduled-enqueue-time"): at}))
    equal(m.body, "later", "arrived")
    if time.time() * 1000 < at or m.annotations[symbol("x-opt-enqueued-time")] < at:
        raise AssertionError("came before its time")


def ttl_dropped(e):
    q = e.queue()
    c = e.connect(0)
    c.send(q, "short", ttl=1)
    time.sleep(1.5)
    c.send(q, "long")
    r = c.receiver(q)
    m, d = r.one()
    equal(m.body, "long", "what is left")
    r.accept(d)
    r.flow(1)
    r.none()


SCENARIOS = {
    "amqp-presettled-send": amqp_presettled_send, "amqp-large": amqp_large, "amqp-types": amqp_types,
    "send-one": send_one, "receive-counts": receive_counts, "schedule-property": schedule_property,
    "ttl-dropped": ttl_dropped,
}
