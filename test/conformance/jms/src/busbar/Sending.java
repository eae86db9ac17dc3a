package busbar;

import static busbar.Env.check;
import static busbar.Env.equal;
import static busbar.Env.fails;
import static busbar.Env.list;
import static busbar.Env.none;
import static busbar.Env.one;
import static busbar.Env.take;
import static busbar.Env.text;

import jakarta.jms.BytesMessage;
import jakarta.jms.DeliveryMode;
import jakarta.jms.JMSSecurityException;
import jakarta.jms.MapMessage;
import jakarta.jms.Message;
import jakarta.jms.MessageProducer;
import jakarta.jms.ObjectMessage;
import jakarta.jms.Session;
import jakarta.jms.StreamMessage;
import jakarta.jms.TextMessage;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;

/** Sending: bodies, headers, limits and lifetimes. */
final class Sending {
    private Sending() {
    }

    static void add(Map<String, Runner.Scenario<Env>> all) {
        passing(all);
        kinds(all);
        limits(all);
        lifetimes(all);
        refused(all);
    }

    private static MessageProducer producer(Session s, String q) throws Exception {
        return s.createProducer(s.createQueue(q));
    }

    private static void passing(Map<String, Runner.Scenario<Env>> all) {
        all.put("send-one", e -> {
            String q = e.queue();
            e.send(q, "hello");
            var c = e.consumer(1, q);
            equal(text(one(c)), "hello", "body");
            none(c);
        });
        all.put("send-many", e -> {
            String q = e.queue();
            e.send(q, "m0", "m1", "m2", "m3", "m4");
            equal(take(e.consumer(1, q), 5), list("m0", "m1", "m2", "m3", "m4"), "bodies");
        });
        all.put("send-id", e -> {
            String q = e.queue();
            Session s = e.session(0);
            Message m = s.createTextMessage("x");
            producer(s, q).send(m);
            equal(one(e.consumer(1, q)).getJMSMessageID(), m.getJMSMessageID(), "id");
        });
        all.put("send-empty", e -> {
            String q = e.queue();
            Session s = e.session(0);
            producer(s, q).send(s.createMessage());
            check(!(one(e.consumer(1, q)) instanceof TextMessage), "a text came of nothing");
        });
        all.put("send-properties", e -> {
            String q = e.queue();
            Session s = e.session(0);
            Message m = s.createTextMessage("x");
            m.setStringProperty("s", "ü€");
            m.setIntProperty("i", -5);
            m.setLongProperty("l", 1L << 40);
            m.setDoubleProperty("d", 2.25);
            m.setFloatProperty("f", 1.5f);
            m.setBooleanProperty("b", true);
            m.setByteProperty("y", (byte) -1);
            m.setShortProperty("h", (short) 300);
            producer(s, q).send(m);
            Message g = one(e.consumer(1, q));
            equal(Arrays.asList(g.getObjectProperty("s"), g.getObjectProperty("i"), g.getObjectProperty("l"),
                g.getObjectProperty("d"), g.getObjectProperty("f"), g.getObjectProperty("b"), g.getObjectProperty("y"),
                g.getObjectProperty("h")),
                Arrays.asList("ü€", -5, 1L << 40, 2.25, 1.5f, true, (byte) -1, (short) 300), "properties");
        });
        all.put("jms-queue", e -> {
            String q = e.queue();
            Session s = e.session(0);
            Message m = s.createTextMessage("text");
            m.setJMSCorrelationID("corr");
            m.setJMSType("type");
            m.setStringProperty("JMSXGroupID", "group");
            m.setIntProperty("JMSXGroupSeq", 7);
            var p = producer(s, q);
            p.setPriority(7);
            p.setDeliveryMode(DeliveryMode.PERSISTENT);
            p.send(m);
            Message g = one(e.consumer(1, q));
            equal(Arrays.asList(text(g), g.getJMSCorrelationID(), g.getJMSType(), g.getStringProperty("JMSXGroupID"),
                g.getJMSPriority(), g.getJMSDeliveryMode(), g.getJMSRedelivered(), g.getIntProperty("JMSXGroupSeq"),
                g.getJMSDestination().toString()),
                Arrays.asList("text", "corr", "type", "group", 7, DeliveryMode.PERSISTENT, false, 7, q), "arrived");
            check(g.getJMSTimestamp() == m.getJMSTimestamp(), "time of sending");
        });
        all.put("jms-reply-to", e -> {
            String q = e.queue();
            String answers = e.queue();
            Session s = e.session(0);
            Message m = s.createTextMessage("question");
            m.setJMSReplyTo(s.createQueue(answers));
            producer(s, q).send(m);
            Session other = e.session(1);
            Message g = one(other.createConsumer(other.createQueue(q)));
            Message answer = other.createTextMessage("answer to " + text(g));
            answer.setJMSCorrelationID(g.getJMSMessageID());
            other.createProducer(g.getJMSReplyTo()).send(answer);
            Message got = one(s.createConsumer(s.createQueue(answers)));
            equal(text(got) + got.getJMSCorrelationID(), "answer to question" + m.getJMSMessageID(), "answer");
        });
    }

    private static void kinds(Map<String, Runner.Scenario<Env>> all) {
        all.put("jms-message-kinds", e -> {
            String q = e.queue();
            Session s = e.session(0);
            var p = producer(s, q);
            p.send(s.createTextMessage("text"));
            BytesMessage bytes = s.createBytesMessage();
            bytes.writeBytes(new byte[] {0, 1, -1});
            p.send(bytes);
            MapMessage map = s.createMapMessage();
            map.setString("k", "v");
            map.setInt("n", 5);
            p.send(map);
            StreamMessage stream = s.createStreamMessage();
            stream.writeString("first");
            stream.writeLong(2);
            p.send(stream);
            p.send(s.createObjectMessage(new ArrayList<>(List.of("an", "object"))));
            var c = e.consumer(1, q);
            equal(((TextMessage) one(c)).getText(), "text", "text");
            BytesMessage b = (BytesMessage) one(c);
            byte[] got = new byte[(int) b.getBodyLength()];
            b.readBytes(got);
            equal(Arrays.toString(got), "[0, 1, -1]", "bytes");
            MapMessage m = (MapMessage) one(c);
            equal(m.getString("k") + m.getInt("n"), "v5", "map");
            StreamMessage t = (StreamMessage) one(c);
            equal(t.readString() + t.readLong(), "first2", "stream");
            equal(((ObjectMessage) one(c)).getObject(), List.of("an", "object"), "object");
        });
    }

    private static void limits(Map<String, Runner.Scenario<Env>> all) {
        all.put("send-large", e -> {
            String q = e.queue();
            String body = "0123456789abcdef".repeat(900 << 6);
            e.send(q, body);
            check(text(one(e.consumer(1, q))).equals(body), "another body");
        });
        all.put("send-too-large", e -> {
            String q = e.queue();
            fails(() -> {
                e.send(q, "x".repeat(2 << 20));
                return null;
            });
            e.send(q, "small");
            equal(text(one(e.consumer(1, q))), "small", "body");
        });
    }

    private static void lifetimes(Map<String, Runner.Scenario<Env>> all) {
        all.put("ttl-dropped", e -> {
            String q = e.queue();
            Session s = e.session(0);
            var p = producer(s, q);
            p.setTimeToLive(1000);
            p.send(s.createTextMessage("short"));
            p.setTimeToLive(0);
            Thread.sleep(1500); // its life
            p.send(s.createTextMessage("long"));
            equal(text(one(e.consumer(1, q))), "long", "what is left");
        });
        all.put("jms-time-to-live", e -> {
            String q = e.queue();
            Session s = e.session(0);
            var p = producer(s, q);
            p.setTimeToLive(60_000);
            Message m = s.createTextMessage("x");
            p.send(m);
            long left = one(e.consumer(1, q)).getJMSExpiration() - System.currentTimeMillis();
            check(left > 20_000 && left <= 61_000, "expires in " + left + " ms");
        });
        all.put("ttl-dead-letter", e -> {
            String q = e.queue("<DeadLetteringOnMessageExpiration>true</DeadLetteringOnMessageExpiration>");
            Session s = e.session(0);
            var p = producer(s, q);
            p.setTimeToLive(1000);
            p.send(s.createTextMessage("short"));
            // Otherwise the client drops what has expired, dead letters too.
            Session r = e.connect(1, "&jms.localMessageExpiry=false").createSession(false, Session.AUTO_ACKNOWLEDGE);
            Message d = one(r.createConsumer(r.createQueue(q + "/$DeadLetterQueue")));
            equal(text(d) + " " + d.getStringProperty("DeadLetterReason"), "short TTLExpiredException", "dead letter");
        });
        all.put("ttl-default", e -> {
            String q = e.queue("<DefaultMessageTimeToLive>PT1S</DefaultMessageTimeToLive>");
            e.send(q, "x");
            Thread.sleep(1500); // its life
            none(e.consumer(1, q));
        });
        all.put("jms-delay", e -> {
            String q = e.queue();
            Session s = e.session(0);
            var p = producer(s, q);
            p.setDeliveryDelay(3000);
            long sent = System.currentTimeMillis();
            p.send(s.createTextMessage("later"));
            p.setDeliveryDelay(0);
            p.send(s.createTextMessage("now"));
            var c = e.consumer(1, q);
            equal(text(one(c)), "now", "first");
            Message later = one(c);
            equal(text(later), "later", "body");
            check(System.currentTimeMillis() >= sent + 3000, "came before its time");
            check(later.getJMSDeliveryTime() >= sent + 3000, "time of delivery " + later.getJMSDeliveryTime());
        });
    }

    private static void refused(Map<String, Runner.Scenario<Env>> all) {
        all.put("send-missing", e -> fails(() -> {
            e.send(e.name(), "x");
            return null;
        }));
        all.put("auth-wrong-key", e -> {
            Exception why = fails(() -> e.connect(0, "", "wrong"));
            check(why instanceof JMSSecurityException, "failed with " + why);
        });
        all.put("session-guard", e -> {
            String q = e.queue("<RequiresSession>true</RequiresSession>");
            fails(() -> {
                e.send(q, "without a group");
                return null;
            });
            Session s = e.session(0);
            Message m = s.createTextMessage("x");
            m.setStringProperty("JMSXGroupID", "S");
            producer(s, q).send(m);
            fails(() -> e.consumer(1, q));
        });
    }
}
