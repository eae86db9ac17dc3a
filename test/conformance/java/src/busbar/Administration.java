package busbar;

import static busbar.Env.check;
import static busbar.Env.equal;
import static busbar.Env.fails;
import static busbar.Env.message;
import static busbar.Env.until;

import com.azure.core.exception.HttpResponseException;
import com.azure.core.exception.ResourceExistsException;
import com.azure.core.exception.ResourceNotFoundException;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import com.azure.messaging.servicebus.administration.models.EntityStatus;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Consumer;

final class Administration {
    private Administration() {
    }

    private static void status(int want, Runnable run) {
        Throwable t = fails(null, run);
        check(t instanceof HttpResponseException, "failed with " + t);
        equal(((HttpResponseException) t).getResponse().getStatusCode(), want, t + ": status");
    }

    private static String wrongKey(String connectionString) {
        return connectionString.replaceAll("SharedAccessKey=[^;]*", "SharedAccessKey=wrong");
    }

    static void add(Map<String, Runner.Scenario<Env>> all) {
        queues(all);
        telling(all);
        refusing(all);
    }

    private static void queues(Map<String, Runner.Scenario<Env>> all) {
        all.put("admin-queue", e -> {
            var a = e.admin(0);
            String name = e.name("q");
            a.createQueue(name, new CreateQueueOptions().setLockDuration(Duration.ofSeconds(45)).setUserMetadata("note"));
            var read = e.admin(1).getQueue(name);
            equal(read.getLockDuration() + " " + read.getUserMetadata(), "PT45S note", "read");
            check(e.admin(1).getQueueExists(name.toUpperCase()), "names must compare without case");
            read.setMaxDeliveryCount(11).setUserMetadata("changed");
            var changed = a.updateQueue(read);
            equal(changed.getMaxDeliveryCount() + " " + changed.getUserMetadata(), "11 changed", "updated");
            a.deleteQueue(name);
            check(!e.admin(1).getQueueExists(name), "it is still there");
        });
        all.put("admin-queue-options", e -> {
            String target = e.queue();
            String q = e.queue(o -> o.setLockDuration(Duration.ofMinutes(2)).setMaxSizeInMegabytes(2048)
                .setDuplicateDetectionRequired(true).setDefaultMessageTimeToLive(Duration.ofMinutes(90))
                .setDeadLetteringOnMessageExpiration(true).setMaxDeliveryCount(17).setBatchedOperationsEnabled(false)
                .setDuplicateDetectionHistoryTimeWindow(Duration.ofMinutes(20)).setUserMetadata("ü <&> \"note\"")
                .setAutoDeleteOnIdle(Duration.ofDays(1)).setForwardDeadLetteredMessagesTo(target));
            var g = e.admin(1).getQueue(q);
            equal(List.of(g.getLockDuration(), g.getMaxSizeInMegabytes(), g.isDuplicateDetectionRequired(),
                g.getDefaultMessageTimeToLive(), g.isDeadLetteringOnMessageExpiration(), g.getMaxDeliveryCount(),
                g.isBatchedOperationsEnabled(), g.getDuplicateDetectionHistoryTimeWindow(), g.getUserMetadata(),
                g.getAutoDeleteOnIdle(), g.isSessionRequired()),
                List.of(Duration.ofMinutes(2), 2048L, true, Duration.ofMinutes(90), true, 17, false,
                    Duration.ofMinutes(20), "ü <&> \"note\"", Duration.ofDays(1), false), "options");
            check(g.getForwardDeadLetteredMessagesTo().endsWith(target), g.getForwardDeadLetteredMessagesTo());
        });
        all.put("admin-queue-list", e -> {
            Set<String> names = new HashSet<>();
            for (int i = 0; i < 5; i++) {
                names.add(e.queue());
            }
            until("every queue is listed", () -> {
                Set<String> seen = new HashSet<>();
                e.admin(1).listQueues().forEach(q -> seen.add(q.getName()));
                return seen.containsAll(names);
            });
        });
        all.put("admin-names", e -> {
            for (String tail : List.of("/a/b", ".x-y_z", "-" + "n".repeat(150))) {
                String name = e.name("q") + tail;
                e.admin(0).createQueue(name);
                e.keep(() -> e.admin(0).deleteQueue(name));
                equal(e.admin(1).getQueue(name).getName(), name, "name");
                e.send(name, message(tail));
                var r = e.receiver(1, name);
                var m = e.one(r);
                equal(m.getBody().toString(), tail, "body");
                r.complete(m);
                r.peekMessages(1).forEach(x -> { });
            }
        });
    }

    private static void telling(Map<String, Runner.Scenario<Env>> all) {
        all.put("admin-counts", e -> {
            String q = e.queue();
            e.send(q, message("a"), message("b"), message("c"), message("d"));
            e.sender(0, q).scheduleMessage(message("later"), OffsetDateTime.now().plusMinutes(1));
            var r = e.receiver(1, q);
            r.deadLetter(e.one(r));
            until("the counts", () -> {
                var p = e.admin(2).getQueueRuntimeProperties(q);
                return p.getActiveMessageCount() == 3 && p.getDeadLetterMessageCount() == 1
                    && p.getScheduledMessageCount() == 1 && p.getTotalMessageCount() == 5;
            });
        });
        all.put("admin-namespace", e -> {
            var p = e.admin(0).getNamespaceProperties();
            check(!p.getName().isEmpty() && p.getMessagingSku() != null, "namespace " + p.getName());
        });
        all.put("admin-missing", e -> {
            String name = e.name("q");
            check(!e.admin(0).getQueueExists(name), "it exists");
            check(fails(null, () -> e.admin(0).getQueue(name)) instanceof ResourceNotFoundException, "another failure");
            check(fails(null, () -> e.admin(0).deleteQueue(name)) instanceof ResourceNotFoundException, "another failure");
        });
        all.put("admin-conflict", e -> {
            String q = e.queue();
            check(fails(null, () -> e.admin(1).createQueue(q)) instanceof ResourceExistsException, "another failure");
        });
    }

    private static void refusing(Map<String, Runner.Scenario<Env>> all) {
        all.put("admin-refused", e -> {
            List<Consumer<CreateQueueOptions>> refused = List.of(
                o -> o.setLockDuration(Duration.ofMinutes(6)), o -> o.setLockDuration(Duration.ofSeconds(1)),
                o -> o.setMaxDeliveryCount(0));
            for (var edit : refused) {
                CreateQueueOptions o = new CreateQueueOptions();
                try {
                    edit.accept(o);
                } catch (IllegalArgumentException x) {
                    continue; // the library refuses it by itself
                }
                status(400, () -> e.admin(0).createQueue(e.name("q"), o));
            }
        });
        all.put("admin-disabled", e -> {
            String q = e.queue();
            e.send(q, message("before"));
            become(e, q, EntityStatus.DISABLED);
            fails(ServiceBusFailureReason.MESSAGING_ENTITY_DISABLED, () -> e.send(q, message("x")));
            become(e, q, EntityStatus.SEND_DISABLED);
            fails(ServiceBusFailureReason.MESSAGING_ENTITY_DISABLED, () -> e.send(q, message("x")));
            var r = e.receiver(1, q);
            r.complete(e.one(r));
            become(e, q, EntityStatus.ACTIVE);
            e.send(q, message("after"));
            r.complete(e.one(r));
        });
        all.put("auth-wrong-key", e -> {
            String q = e.queue();
            var b = e.builder(wrongKey(e.dataString(0)));
            fails(ServiceBusFailureReason.UNAUTHORIZED,
                () -> e.keep(b.sender().queueName(q).buildClient()).sendMessage(message("x")));
        });
        all.put("auth-admin", e -> status(401, () -> e.admin(wrongKey(e.adminString(0))).createQueue(e.name("q"))));
    }

    private static void become(Env e, String q, EntityStatus status) {
        e.admin(0).updateQueue(e.admin(0).getQueue(q).setStatus(status));
    }
}
