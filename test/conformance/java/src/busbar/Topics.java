package busbar;

import static busbar.Env.check;
import static busbar.Env.complete;
import static busbar.Env.equal;
import static busbar.Env.fails;
import static busbar.Env.message;
import static busbar.Env.onTime;
import static busbar.Env.seconds;
import static busbar.Env.texts;
import static busbar.Env.until;

import com.azure.core.exception.ResourceExistsException;
import com.azure.core.exception.ResourceNotFoundException;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.administration.models.CorrelationRuleFilter;
import com.azure.messaging.servicebus.administration.models.CreateRuleOptions;
import com.azure.messaging.servicebus.administration.models.CreateSubscriptionOptions;
import com.azure.messaging.servicebus.administration.models.CreateTopicOptions;
import com.azure.messaging.servicebus.administration.models.FalseRuleFilter;
import com.azure.messaging.servicebus.administration.models.RuleProperties;
import com.azure.messaging.servicebus.administration.models.SqlRuleAction;
import com.azure.messaging.servicebus.administration.models.SqlRuleFilter;
import com.azure.messaging.servicebus.administration.models.TrueRuleFilter;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.SubQueue;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** Topics, subscriptions, rules and forwarding. */
final class Topics {
    private Topics() {
    }

    static void add(Map<String, Runner.Scenario<Env>> all) {
        administration(all);
        rules(all);
        choosing(all);
        receiving(all);
        later(all);
        forwarding(all);
    }

    private static void send(Env e, String topic, ServiceBusMessage... messages) {
        Api.send(e.keep(e.builder(0).sender().topicName(topic).buildClient()), List.of(messages));
    }

    private static ServiceBusReceiverClient receiver(Env e, int i, String topic, String name) {
        return e.keep(e.builder(i).receiver().topicName(topic).subscriptionName(name).disableAutoComplete()
            .maxAutoLockRenewDuration(Duration.ZERO).buildClient());
    }

    private static ServiceBusMessage with(String body, Object... properties) {
        var m = message(body);
        for (int i = 0; i < properties.length; i += 2) {
            m.getApplicationProperties().put((String) properties[i], properties[i + 1]);
        }
        return m;
    }

    /** The bodies that reached the subscription. */
    private static List<String> chosen(Env e, String topic, String name) throws Exception {
        var r = receiver(e, 1, topic, name);
        List<String> got = new ArrayList<>();
        if (Api.OLDEST) { // a second receive may never come back
            Thread.sleep(Env.QUIET.toMillis());
            return texts(r.peekMessages(50));
        }
        while (true) {
            var batch = new ArrayList<com.azure.messaging.servicebus.ServiceBusReceivedMessage>();
            r.receiveMessages(10, got.isEmpty() ? Duration.ofSeconds(5) : Env.QUIET).forEach(batch::add);
            if (batch.isEmpty()) {
                return got;
            }
            got.addAll(texts(batch));
            complete(r, batch);
        }
    }

    /** A topic with a subscription for each rule, which is its only one. */
    private static String filtered(Env e, Map<String, CreateRuleOptions> rules) throws Exception {
        String t = e.topic();
        for (var r : rules.entrySet()) {
            Api.subscribe(e.admin(0), t, r.getKey(), "only", new CreateSubscriptionOptions(), r.getValue());
        }
        return t;
    }

    private static CreateRuleOptions sql(String expression) {
        return new CreateRuleOptions(new SqlRuleFilter(expression));
    }

    private static List<String> names(Iterable<RuleProperties> rules) {
        List<String> all = new ArrayList<>();
        rules.forEach(r -> all.add(r.getName()));
        return all.stream().sorted().toList();
    }

    private static void administration(Map<String, Runner.Scenario<Env>> all) {
        all.put("topic-admin", e -> {
            var a = e.admin(0);
            String name = e.name("t");
            var made = a.createTopic(name, new CreateTopicOptions().setUserMetadata("note")
                .setDefaultMessageTimeToLive(Duration.ofHours(2)));
            equal(made.getName() + " " + made.getUserMetadata(), name + " note", "made");
            var read = e.admin(1).getTopic(name);
            equal(read.getDefaultMessageTimeToLive(), Duration.ofHours(2), "time to live");
            equal(a.updateTopic(read.setUserMetadata("changed")).getUserMetadata(), "changed", "updated");
            check(fails(null, () -> a.createTopic(name)) instanceof ResourceExistsException, "another failure");
            check(fails(null, () -> a.createQueue(name)) instanceof ResourceExistsException, "another failure");
            until("the topic is listed", () -> a.listTopics().stream().anyMatch(t -> t.getName().equals(name)));
            check(a.getTopicExists(name), "it does not exist");
            a.deleteTopic(name);
            check(!a.getTopicExists(name), "it is still there");
        });
        all.put("subscription-admin", e -> {
            String t = e.topic();
            var a = e.admin(0);
            var made = a.createSubscription(t, "one", new CreateSubscriptionOptions()
                .setLockDuration(Duration.ofSeconds(45)).setMaxDeliveryCount(7));
            equal(List.of(made.getSubscriptionName(), made.getTopicName(), made.getLockDuration(),
                made.getMaxDeliveryCount()), List.of("one", t, Duration.ofSeconds(45), 7), "made");
            a.createSubscription(t, "two");
            var read = e.admin(1).getSubscription(t, "one");
            equal(a.updateSubscription(read.setUserMetadata("changed")).getUserMetadata(), "changed", "updated");
            equal(a.listSubscriptions(t).stream().map(s -> s.getSubscriptionName()).toList(), List.of("one", "two"),
                "listed");
            equal(a.getTopicRuntimeProperties(t).getSubscriptionCount(), 2, "subscriptions");
            check(fails(null, () -> a.createSubscription(t, "one")) instanceof ResourceExistsException, "another");
            a.deleteSubscription(t, "one");
            check(!a.getSubscriptionExists(t, "one"), "it is still there");
        });
    }

    private static final String CHOICE = "price > 10 AND colour IN ('red','blue')";

    private static CorrelationRuleFilter correlation() {
        var f = new CorrelationRuleFilter().setLabel("l").setCorrelationId("c").setContentType("ct");
        f.getProperties().putAll(Map.of("kind", "a", "n", 5));
        return f;
    }

    private static void rules(Map<String, Runner.Scenario<Env>> all) {
        all.put("rule-admin", e -> {
            String t = e.topic();
            var a = e.admin(0);
            a.createSubscription(t, "s");
            var first = a.getRule(t, "s", "$Default");
            check(first.getFilter() instanceof TrueRuleFilter, "the default rule is " + first.getFilter());
            a.createRule(t, "sql", "s", sql(CHOICE).setAction(new SqlRuleAction("SET marked = TRUE; REMOVE colour")));
            a.createRule(t, "corr", "s", new CreateRuleOptions(correlation()));
            a.createRule(t, "none", "s", new CreateRuleOptions(new FalseRuleFilter()));
            var read = e.admin(1).getRule(t, "s", "sql");
            equal(((SqlRuleFilter) read.getFilter()).getSqlExpression(), CHOICE, "filter");
            equal(((SqlRuleAction) read.getAction()).getSqlExpression(), "SET marked = TRUE; REMOVE colour", "action");
            var corr = (CorrelationRuleFilter) e.admin(1).getRule(t, "s", "corr").getFilter();
            equal(corr.getLabel() + corr.getCorrelationId() + corr.getContentType() + new TreeMap<>(corr.getProperties()),
                "lcct{kind=a, n=5}", "correlation filter");
            read.setFilter(new SqlRuleFilter("price > 20"));
            equal(((SqlRuleFilter) a.updateRule(t, "s", read).getFilter()).getSqlExpression(), "price > 20", "updated");
            equal(names(a.listRules(t, "s")), List.of("$Default", "corr", "none", "sql"), "listed");
            a.deleteRule(t, "s", "$Default");
            check(fails(null, () -> a.getRule(t, "s", "$Default")) instanceof ResourceNotFoundException, "another");
        });
        all.put("topic-rules-live", e -> {
            String t = e.topic();
            e.admin(0).createSubscription(t, "s");
            var m = Api.Rules.of(e, e.builder(0), t, "s");
            equal(names(m.list()), List.of("$Default"), "listed");
            m.create("red", sql("colour = 'red'").setAction(new SqlRuleAction("SET seen = TRUE")));
            m.create("corr", new CreateRuleOptions(correlation()));
            m.delete("$Default");
            equal(names(m.list()), List.of("corr", "red"), "listed");
            fails(null, () -> {
                m.create("red", sql("1=1"));
                return null;
            });
            fails(null, () -> {
                m.delete("nobody");
                return null;
            });
            until("the rules are in force", () -> {
                send(e, t, message("plain"), with("red", "colour", "red"));
                return !chosen(e, t, "s").contains("plain");
            });
        });
    }

    private static void choosing(Map<String, Runner.Scenario<Env>> all) {
        all.put("topic-sql", e -> {
            String t = filtered(e, new LinkedHashMap<>(Map.of("dear", sql("price > 10"),
                "red", sql("colour = 'red' OR sys.Label LIKE 'r%'"), "bare", sql("price IS NULL"),
                "nothing", new CreateRuleOptions(new FalseRuleFilter()))));
            send(e, t, with("a", "price", 5, "colour", "red"), with("b", "price", 15, "colour", "blue"),
                with("c", "price", 20.5).setSubject("rose"), message("d"));
            equal(chosen(e, t, "dear"), List.of("b", "c"), "dear");
            equal(chosen(e, t, "red"), List.of("a", "c"), "red");
            equal(chosen(e, t, "bare"), List.of("d"), "bare");
            equal(chosen(e, t, "nothing"), List.of(), "nothing");
        });
        all.put("topic-correlation", e -> {
            var both = new CorrelationRuleFilter().setCorrelationId("c");
            both.getProperties().put("kind", "a");
            String t = filtered(e, Map.of("label", new CreateRuleOptions(new CorrelationRuleFilter().setLabel("l")),
                "both", new CreateRuleOptions(both)));
            send(e, t, message("a").setSubject("l"), message("b").setCorrelationId("c"),
                with("c", "kind", "a").setCorrelationId("c"));
            equal(chosen(e, t, "label"), List.of("a"), "label");
            equal(chosen(e, t, "both"), List.of("c"), "both");
        });
        all.put("topic-action", e -> {
            String t = filtered(e, Map.of("changed", sql("1=1").setAction(
                new SqlRuleAction("SET total = price * 2; SET sys.Label = 'marked'; REMOVE secret"))));
            send(e, t, with("x", "price", 21, "secret", "s"));
            var m = e.one(receiver(e, 1, t, "changed"));
            equal(((Number) m.getApplicationProperties().get("total")).intValue(), 42, "total");
            equal(m.getSubject() + m.getApplicationProperties().get("secret"), "markednull", "label and secret");
        });
    }

    private static void receiving(Map<String, Runner.Scenario<Env>> all) {
        all.put("topic-fan-out", e -> {
            String t = e.topic();
            var names = List.of("a", "b", "c");
            names.forEach(name -> e.admin(0).createSubscription(t, name));
            send(e, t, message("m0"), message("m1"), message("m2"));
            for (int i = 0; i < 3; i++) {
                var r = receiver(e, i, t, names.get(i));
                var got = e.take(r, 3);
                equal(texts(got), List.of("m0", "m1", "m2"), names.get(i));
                complete(r, got);
                e.none(r);
            }
        });
        all.put("topic-dead-letter", e -> {
            String t = e.topic();
            e.admin(0).createSubscription(t, "s");
            send(e, t, message("bad"));
            var r = receiver(e, 1, t, "s");
            r.deadLetter(e.one(r), new DeadLetterOptions().setDeadLetterReason("why"));
            var d = e.keep(e.builder(0).receiver().topicName(t).subscriptionName("s")
                .subQueue(SubQueue.DEAD_LETTER_QUEUE).disableAutoComplete().buildClient());
            var m = e.one(d);
            equal(m.getBody() + " " + m.getDeadLetterReason(), "bad why", "the dead letter");
            d.complete(m);
        });
        all.put("topic-sessions", e -> {
            String t = e.topic();
            e.admin(0).createSubscription(t, "s", new CreateSubscriptionOptions().setSessionRequired(true));
            for (int i = 0; i < 3; i++) {
                send(e, t, Env.in("A", "A" + i), Env.in("B", "B" + i));
            }
            List<String> held = new ArrayList<>();
            for (int i = 0; i < 2; i++) {
                var r = e.keep(e.keep(e.builder(i).sessionReceiver().topicName(t).subscriptionName("s")
                    .disableAutoComplete().buildClient()).acceptNextSession());
                var got = e.take(r, 3);
                String s = Api.session(r, got.get(0));
                equal(texts(got), List.of(s + 0, s + 1, s + 2), "in order");
                complete(r, got);
                held.add(s);
            }
            equal(held.stream().sorted().toList(), List.of("A", "B"), "held");
        });
        all.put("topic-receive", e -> {
            String t = e.topic();
            fails(null, () -> texts(e.receiver(0, t).receiveMessages(1, Duration.ofSeconds(5))));
        });
    }

    private static void later(Map<String, Runner.Scenario<Env>> all) {
        all.put("topic-schedule", e -> {
            String t = e.topic();
            e.admin(0).createSubscription(t, "s");
            var s = e.keep(e.builder(0).sender().topicName(t).buildClient());
            var at = seconds(12);
            s.scheduleMessage(message("keep"), at);
            s.cancelScheduledMessage(s.scheduleMessage(message("drop"), at));
            var r = receiver(e, 1, t, "s");
            var m = e.one(r);
            onTime(at);
            equal(m.getBody().toString(), "keep", "body");
            r.complete(m);
            e.none(r);
        });
        all.put("topic-counts", e -> {
            String t = e.topic();
            e.admin(0).createSubscription(t, "s");
            send(e, t, message("a"), message("b"), message("c"));
            var r = receiver(e, 1, t, "s");
            r.deadLetter(e.one(r));
            until("the counts", () -> {
                var p = e.admin(1).getSubscriptionRuntimeProperties(t, "s");
                return p.getActiveMessageCount() == 2 && p.getDeadLetterMessageCount() == 1
                    && p.getTotalMessageCount() == 3;
            });
        });
    }

    private static void forwarding(Map<String, Runner.Scenario<Env>> all) {
        all.put("forward", e -> {
            String last = e.queue();
            String second = e.queue(o -> o.setForwardTo(last));
            String first = e.queue(o -> o.setForwardTo(second));
            e.send(first, with("x", "k", "v").setMessageId("the-id"));
            var r = e.receiver(1, last);
            var m = e.one(r);
            equal(m.getBody() + " " + m.getMessageId() + " " + m.getDeliveryCount() + " "
                + m.getApplicationProperties().get("k"), "x the-id 0 v", "what was forwarded twice");
            r.complete(m);
            fails(null, () -> texts(e.receiver(1, first).receiveMessages(1, Duration.ofSeconds(5))));
        });
        all.put("forward-topic", e -> {
            String q = e.queue();
            String t = e.topic();
            e.admin(0).createSubscription(t, "s", new CreateSubscriptionOptions().setForwardTo(q));
            send(e, t, message("a"), message("b"));
            var r = e.receiver(1, q);
            equal(texts(e.take(r, 2)).stream().sorted().toList(), List.of("a", "b"), "forwarded");
        });
        all.put("forward-dead-letters", e -> {
            String graves = e.queue();
            String q = e.queue(o -> o.setForwardDeadLetteredMessagesTo(graves));
            e.send(q, message("bad"));
            var r = e.receiver(1, q);
            r.deadLetter(e.one(r), new DeadLetterOptions().setDeadLetterReason("why"));
            var d = e.receiver(0, graves);
            var m = e.one(d);
            equal(m.getBody() + " " + m.getDeadLetterReason() + " " + m.getDeadLetterSource().equalsIgnoreCase(q),
                "bad why true", "the dead letter");
            d.complete(m);
        });
    }
}
