package busbar;

import static busbar.Env.check;
import static busbar.Env.equal;

import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import java.time.Duration;
import java.util.Arrays;
import java.util.Map;
import java.util.Random;
import java.util.function.BiConsumer;
import java.util.function.Consumer;

/** A message of megabytes on its way through three queues, while leaders may be killed. */
final class Large {
    /** The SDK drops a larger one: it takes 1 KiB of every 64 KiB that the link allows for itself. */
    private static final int MOST_MB = 98;
    private static final int MB = Math.min(MOST_MB, Integer.parseInt(System.getenv().getOrDefault("BUSBAR_LARGE", "5")));
    /** Rounds begin for that long; there is one at least. */
    private static final long SECONDS = Long.parseLong(System.getenv().getOrDefault("BUSBAR_LARGE_SECONDS", "0"));
    /** For one receive. A message that a killed node was handing out is locked for longer. */
    private static final Duration WAIT = Duration.ofSeconds(20);

    private final Env e;
    private final long began = System.nanoTime();
    private final byte[] body = new byte[(MB << 20) - 4096];

    private Large(Env e) {
        this.e = e;
        new Random(1).nextBytes(body);
    }

    static void add(Map<String, Runner.Scenario<Env>> all) {
        all.put("large-message", e -> new Large(e).run());
    }

    private String queue(Consumer<CreateQueueOptions> edit) throws Exception {
        var options = new CreateQueueOptions().setLockDuration(Duration.ofSeconds(30))
            .setDuplicateDetectionRequired(true); // a send of which nobody knows the outcome is done again
        Api.setMaxMessageSize(options, 102_400);
        edit.accept(options);
        String name = e.name("q");
        e.admin(0).createQueue(name, options);
        e.keep(() -> e.admin(0).deleteQueue(name));
        return name;
    }

    private void run() throws Exception {
        String last = queue(o -> { });
        String dead = queue(o -> o.setForwardDeadLetteredMessagesTo(last));
        String first = queue(o -> o.setForwardTo(dead));
        for (int n = 1; n == 1 || passed() < SECONDS; n++) {
            String id = "large-" + n;
            again("send", b -> {
                try (var s = b.sender().queueName(first).buildClient()) {
                    s.sendMessage(new ServiceBusMessage(body).setMessageId(id));
                }
            });
            settled("dead-letter", dead, (r, m) -> {
                whole(m, id);
                r.deadLetter(m, new DeadLetterOptions().setDeadLetterReason(id));
            });
            settled("complete", last, (r, m) -> {
                whole(m, id);
                equal(m.getDeadLetterReason(), id, "reason");
                r.complete(m);
            });
        }
        for (String queue : new String[] {dead, last}) {
            check(e.receiver(1, queue).peekMessage() == null, "a message is left in " + queue);
        }
    }

    private long passed() {
        return (System.nanoTime() - began) / 1_000_000_000;
    }

    private void whole(ServiceBusReceivedMessage m, String id) {
        equal(m.getMessageId(), id, "message id");
        byte[] got = m.getBody().toBytes();
        check(Arrays.equals(got, body), "the body of " + got.length + " bytes is another one");
    }

    /** Does a step, again at the next node whenever it fails, as while leaders are lost. */
    private void again(String what, Consumer<ServiceBusClientBuilder> step) throws InterruptedException {
        for (int at = 0;; at++) {
            try {
                step.accept(e.builder(e.dataString(at), Duration.ofMinutes(1), 1));
                return;
            } catch (RuntimeException x) {
                check(passed() < Main.LIMIT_SECONDS, what + ": " + x);
                Thread.sleep(500);
            }
        }
    }

    /**
     * Receives the only message of a queue and settles it. A settlement that failed may have been done all the
     * same: then the queue is empty.
     */
    private void settled(String what, String queue, BiConsumer<ServiceBusReceiverClient, ServiceBusReceivedMessage> settle)
        throws InterruptedException {
        boolean[] tried = new boolean[1];
        again(what, b -> {
            try (var r = b.receiver().queueName(queue).disableAutoComplete().maxAutoLockRenewDuration(Duration.ZERO)
                .buildClient()) {
                if (tried[0] && r.peekMessage() == null) {
                    return;
                }
                var got = r.receiveMessages(1, WAIT).stream().findFirst();
                check(got.isPresent() || passed() < Main.LIMIT_SECONDS, what + ": no message came");
                if (got.isEmpty()) {
                    throw new IllegalStateException("no message came in time");
                }
                tried[0] = true;
                settle.accept(r, got.get());
            }
        });
    }
}
