package busbar;

import static busbar.Env.check;
import static busbar.Env.complete;
import static busbar.Env.equal;
import static busbar.Env.fails;
import static busbar.Env.message;
import static busbar.Env.onTime;
import static busbar.Env.seconds;
import static busbar.Env.texts;

import com.azure.core.util.BinaryData;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusMessageBatch;
import com.azure.core.amqp.models.AmqpMessageBody;
import com.azure.messaging.servicebus.models.CreateMessageBatchOptions;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import reactor.core.publisher.Flux;

final class Sending {
    private Sending() {
    }

    static void add(Map<String, Runner.Scenario<Env>> all) {
        all.put("send-one", e -> {
            String q = e.queue();
            e.send(q, message("hello"));
            var r = e.receiver(1, q);
            var m = e.one(r);
            equal(m.getBody().toString(), "hello", "body");
            r.complete(m);
            e.none(r);
        });
        all.put("send-properties", Sending::properties);
        all.put("send-body-kinds", e -> {
            String q = e.queue();
            e.send(q, new ServiceBusMessage(AmqpMessageBody.fromValue("a value")));
            e.send(q, new ServiceBusMessage(AmqpMessageBody.fromSequence(List.of("a", 1, true))));
            e.send(q, new ServiceBusMessage(BinaryData.fromBytes(new byte[] {0, 1, -2, -1})));
            var got = e.take(e.receiver(1, q), 3);
            equal(got.get(0).getRawAmqpMessage().getBody().getValue(), "a value", "value");
            equal(got.get(1).getRawAmqpMessage().getBody().getSequence(), List.of("a", 1, true), "sequence");
            check(Arrays.equals(got.get(2).getBody().toBytes(), new byte[] {0, 1, -2, -1}), "bytes changed");
        });
        all.put("send-empty", e -> {
            String q = e.queue();
            e.send(q, new ServiceBusMessage(new byte[0]).setSubject("nothing"));
            var m = e.one(e.receiver(1, q));
            equal(m.getBody().toBytes().length, 0, "bytes");
            equal(m.getSubject(), "nothing", "subject");
        });
        all.put("send-id", e -> {
            String q = e.queue();
            for (String id : List.of("order-1", "ü".repeat(60), "x".repeat(128))) {
                e.send(q, message(id).setMessageId(id));
            }
            e.take(e.receiver(1, q), 3).forEach(m -> equal(m.getMessageId(), m.getBody().toString(), "id"));
        });
        all.put("send-many", e -> {
            String q = e.queue();
            List<String> bodies = new ArrayList<>();
            for (int i = 0; i < 50; i++) {
                bodies.add("m" + i);
            }
            // The asynchronous client, one after the other.
            var s = e.keep(e.builder(0).sender().queueName(q).buildAsyncClient());
            Flux.fromIterable(bodies).concatMap(b -> s.sendMessage(message(b))).blockLast(Env.SOON);
            var r = e.receiver(1, q);
            var got = e.take(r, 50);
            equal(texts(got), bodies, "bodies");
            complete(r, got);
        });
        all.put("send-pipelined", e -> {
            String q = e.queue();
            var s = e.keep(e.builder(0).sender().queueName(q).buildAsyncClient());
            long sent = Flux.range(0, 500).flatMap(i -> s.sendMessage(message("m" + i)).thenReturn(i), 500)
                .count().block(Env.SOON);
            equal(sent, 500L, "outcomes");
            equal(e.take(e.receiver(1, q), 500).stream().map(m -> m.getBody().toString()).distinct().count(), 500L,
                "messages");
        });
        all.put("send-batch", e -> {
            String q = e.queue();
            var s = e.sender(0, q);
            ServiceBusMessageBatch batch = s.createMessageBatch();
            int n = 0;
            while (n < 200 && batch.tryAddMessage(message(n + ":" + "x".repeat(16 << 10)))) {
                n++;
            }
            check(n > 50 && n < 70, n + " messages of 16 KiB fit, want what a limit of 1 MiB holds");
            s.sendMessages(batch);
            var r = e.receiver(1, q);
            var got = e.take(r, n);
            for (int i = 0; i < n; i++) {
                check(got.get(i).getBody().toString().startsWith(i + ":"), "out of order at " + i);
            }
            complete(r, got);
            var small = s.createMessageBatch(new CreateMessageBatchOptions().setMaximumSizeInBytes(1000));
            fails(ServiceBusFailureReason.MESSAGE_SIZE_EXCEEDED, () -> small.tryAddMessage(message("y".repeat(2000))));
        });
        all.put("send-large", e -> {
            String q = e.queue();
            byte[] body = new byte[900 << 10];
            for (int i = 0; i < body.length; i++) {
                body[i] = (byte) (i * 7);
            }
            e.send(q, new ServiceBusMessage(body));
            var r = e.receiver(1, q);
            var m = e.one(r);
            check(Arrays.equals(m.getBody().toBytes(), body), "the body came back changed");
            r.complete(m);
        });
        all.put("send-too-large", e -> {
            String q = e.queue();
            var s = e.sender(0, q);
            fails(ServiceBusFailureReason.MESSAGE_SIZE_EXCEEDED,
                () -> s.sendMessage(new ServiceBusMessage(new byte[2 << 20])));
            s.sendMessage(message("small"));
            var m = e.one(e.receiver(1, q));
            equal(m.getBody() + " " + m.getSequenceNumber(), "small 1", "arrived");
        });
        all.put("send-missing", e -> fails(ServiceBusFailureReason.MESSAGING_ENTITY_NOT_FOUND,
            () -> e.sender(0, e.name("q")).sendMessage(message("x"))));
        all.put("send-partitioned", Sending::partitioned);
        schedules(all);
        expiry(all);
    }

    private static void properties(Env e) {
        String q = e.queue();
        Map<String, Object> properties = new HashMap<>();
        properties.put("s", "ü");
        properties.put("i", -5);
        properties.put("l", 1L << 40);
        properties.put("d", 1.5);
        properties.put("b", true);
        if (!Api.OLDEST) { // it cannot encode these
            properties.put("t", OffsetDateTime.parse("2020-02-03T04:05:06Z"));
            properties.put("span", Duration.ofSeconds(90));
        }
        var sent = message("x").setContentType("text/plain").setCorrelationId("corr").setMessageId("mid-1")
            .setSubject("subj").setTo("to").setReplyTo("rt").setReplyToSessionId("rts").setSessionId("only data")
            .setPartitionKey("only data").setTimeToLive(Duration.ofSeconds(90));
        sent.getApplicationProperties().putAll(properties);
        e.send(q, sent);
        var m = e.one(e.receiver(1, q));
        equal(List.of(m.getContentType(), m.getCorrelationId(), m.getMessageId(), m.getSubject(), m.getTo(),
            m.getReplyTo(), m.getReplyToSessionId(), m.getSessionId(), m.getPartitionKey()),
            List.of("text/plain", "corr", "mid-1", "subj", "to", "rt", "rts", "only data", "only data"), "properties");
        properties.forEach((k, v) -> equal(m.getApplicationProperties().get(k), v, k));
        equal(m.getTimeToLive(), Duration.ofSeconds(90), "time to live");
        equal(Duration.between(m.getEnqueuedTime(), m.getExpiresAt()), Duration.ofSeconds(90), "lives for");
    }

    private static void partitioned(Env e) {
        String q = e.queue(o -> o.setPartitioningEnabled(true));
        var s = e.sender(0, q);
        int n = 60;
        for (int i = 0; i < n; i++) {
            s.sendMessage(message("" + i).setPartitionKey("key-" + i % 12));
        }
        var r = e.receiver(1, q);
        Map<Long, String> numbers = new HashMap<>();
        Map<String, Integer> last = new HashMap<>();
        for (var m : e.take(r, n)) {
            check(m.getSequenceNumber() >>> 48 > 0, "a number without partition");
            numbers.put(m.getSequenceNumber(), "");
            int i = Integer.parseInt(m.getBody().toString());
            check(last.getOrDefault(m.getPartitionKey(), -1) < i, i + " is out of order");
            last.put(m.getPartitionKey(), i);
            r.complete(m);
        }
        equal(numbers.size(), n, "numbers");
        e.none(r);
    }

    private static void schedules(Map<String, Runner.Scenario<Env>> all) {
        all.put("schedule", e -> {
            String q = e.queue();
            var at = seconds(4);
            e.sender(0, q).scheduleMessage(message("later"), at);
            var r = e.receiver(1, q);
            var m = e.one(r);
            onTime(at);
            equal(m.getScheduledEnqueueTime().toInstant().toEpochMilli(), at.toInstant().toEpochMilli(), "time");
            r.complete(m);
        });
        all.put("schedule-many", e -> {
            String q = e.queue();
            List<Long> numbers = new ArrayList<>();
            e.sender(0, q).scheduleMessages(List.of(message("a"), message("b"), message("c")), seconds(2))
                .forEach(numbers::add);
            equal(numbers.stream().distinct().count(), 3L, "numbers");
            var r = e.receiver(1, q);
            var got = e.take(r, 3);
            equal(texts(got).stream().sorted().toList(), List.of("a", "b", "c"), "bodies");
            complete(r, got);
        });
        all.put("schedule-property", e -> {
            String q = e.queue();
            var at = seconds(3);
            e.send(q, message("later").setScheduledEnqueueTime(at));
            var m = e.one(e.receiver(1, q));
            onTime(at);
            equal(m.getBody().toString(), "later", "body");
        });
        all.put("schedule-cancel", e -> {
            String q = e.queue();
            var s = e.sender(0, q);
            List<Long> numbers = new ArrayList<>();
            s.scheduleMessages(List.of(message("a"), message("b"), message("keep")), seconds(12)).forEach(numbers::add);
            s.cancelScheduledMessages(numbers.subList(0, 2));
            var r = e.receiver(1, q);
            var m = e.one(r);
            equal(m.getBody().toString(), "keep", "body");
            r.complete(m);
            e.none(r);
        });
        all.put("schedule-cancel-missing", e -> {
            String q = e.queue();
            var s = e.sender(0, q);
            long number = s.scheduleMessage(message("x"), seconds(60));
            s.cancelScheduledMessage(number);
            s.cancelScheduledMessage(number); // of a number that is not there the library tells nothing
            s.sendMessage(message("the link goes on"));
        });
    }

    private static void expiry(Map<String, Runner.Scenario<Env>> all) {
        all.put("ttl-dropped", e -> {
            String q = e.queue();
            e.send(q, message("short").setTimeToLive(Duration.ofSeconds(1)), message("long"));
            Thread.sleep(1500);
            var r = e.receiver(1, q);
            var m = e.one(r);
            equal(m.getBody().toString(), "long", "body");
            r.complete(m);
            e.none(r);
            e.none(e.deadLetters(1, q));
        });
        all.put("ttl-dead-letter", e -> {
            String q = e.queue(o -> o.setDeadLetteringOnMessageExpiration(true));
            e.send(q, message("short").setTimeToLive(Duration.ofSeconds(1)));
            var m = e.one(e.deadLetters(1, q));
            equal(m.getDeadLetterReason(), "TTLExpiredException", "reason");
        });
        all.put("ttl-default", e -> {
            String q = e.queue(o -> o.setDefaultMessageTimeToLive(Duration.ofSeconds(2)));
            e.send(q, message("a"), message("b").setTimeToLive(Duration.ofHours(1)));
            Thread.sleep(2500);
            e.none(e.receiver(1, q));
        });
        all.put("duplicate-dropped", e -> {
            String q = e.queue(o -> o.setDuplicateDetectionRequired(true)
                .setDuplicateDetectionHistoryTimeWindow(Duration.ofMinutes(1)));
            e.send(q, message("first").setMessageId("same"));
            e.sender(1, q).sendMessage(message("second").setMessageId("same"));
            e.send(q, message("other").setMessageId("other"));
            var r = e.receiver(1, q);
            var got = e.take(r, 2);
            equal(texts(got), List.of("first", "other"), "bodies");
            complete(r, got);
            e.sender(1, q).sendMessage(message("third").setMessageId("same"));
            e.none(r);
        });
        all.put("duplicate-batch", e -> {
            String q = e.queue(o -> o.setDuplicateDetectionRequired(true));
            e.send(q, message("a0").setMessageId("a"), message("b1").setMessageId("b"),
                message("a2").setMessageId("a"), message("c3").setMessageId("c"));
            var r = e.receiver(1, q);
            equal(texts(e.take(r, 3)), List.of("a0", "b1", "c3"), "bodies");
        });
    }
}
