package busbar;

import jakarta.jms.ConnectionFactory;
import jakarta.jms.Message;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.jms.annotation.EnableJms;
import org.springframework.jms.annotation.JmsListener;
import org.springframework.jms.config.DefaultJmsListenerContainerFactory;
import org.springframework.jms.connection.CachingConnectionFactory;
import org.springframework.jms.core.JmsTemplate;
import org.springframework.messaging.handler.annotation.SendTo;

/** A Spring application with listeners and a template; one line for each scenario. The entities are there. */
public final class Flow {
    private static final long LIMIT_MS = 60_000;

    private static final List<String> REPLIES = new CopyOnWriteArrayList<>();
    private static final List<Integer> TRIES = new CopyOnWriteArrayList<>();
    private static final List<String> EVENTS = new CopyOnWriteArrayList<>();

    private Flow() {
    }

    /** How an application is wired. */
    @Configuration
    @EnableJms
    public static class Wiring {
        @Bean
        public ConnectionFactory connections() {
            var qpid = new JmsConnectionFactory(System.getenv("BUSBAR_KEY_NAME"), System.getenv("BUSBAR_KEY"),
                "amqps://" + System.getenv("BUSBAR_TLS").replace("127.0.0.1", "localhost")
                    + "?amqp.saslMechanisms=PLAIN&jms.prefetchPolicy.all=10");
            return new CachingConnectionFactory(qpid);
        }

        @Bean
        public DefaultJmsListenerContainerFactory jmsListenerContainerFactory(ConnectionFactory connections) {
            var f = new DefaultJmsListenerContainerFactory();
            f.setConnectionFactory(connections);
            f.setSessionTransacted(true);
            f.setConcurrency("1-3");
            return f;
        }

        @Bean
        public JmsTemplate queues(ConnectionFactory connections) {
            return new JmsTemplate(connections);
        }

        @Bean
        public JmsTemplate topics(ConnectionFactory connections) {
            var t = new JmsTemplate(connections);
            t.setPubSubDomain(true);
            return t;
        }

        @Bean
        public Listeners listeners() {
            return new Listeners();
        }
    }

    /** What the application does with messages. */
    public static class Listeners {
        @JmsListener(destination = "spring-orders")
        @SendTo("spring-replies")
        public String order(String body) {
            return "done: " + body;
        }

        @JmsListener(destination = "spring-replies")
        public void reply(String body) {
            REPLIES.add(body);
        }

        @JmsListener(destination = "spring-fragile")
        public void fragile(Message m) throws Exception {
            TRIES.add(m.getIntProperty("JMSXDeliveryCount"));
            if (TRIES.size() < 2) {
                throw new IllegalStateException("again"); // rolls the session back
            }
        }

        @JmsListener(destination = "spring-events/Subscriptions/all")
        public void event(String body) {
            EVENTS.add(body);
        }
    }

    private static void scenarios(Map<String, Runner.Scenario<Scene>> all, JmsTemplate queues, JmsTemplate topics) {
        all.put("spring-listener", e -> {
            for (int i = 0; i < 10; i++) {
                queues.convertAndSend("spring-orders", "order " + i);
            }
            Scene.until("ten replies", LIMIT_MS, () -> REPLIES.size() >= 10);
            Scene.equal(REPLIES.stream().distinct().count(), 10L, "replies");
        });
        all.put("spring-rollback", e -> {
            queues.convertAndSend("spring-fragile", "x");
            Scene.until("a second try", LIMIT_MS, () -> TRIES.size() >= 2);
            Scene.equal(TRIES, List.of(1, 2), "counts");
        });
        all.put("spring-topic", e -> {
            topics.convertAndSend("spring-events", "something happened");
            Scene.until("an event", LIMIT_MS, () -> EVENTS.contains("something happened"));
        });
    }

    public static void main(String[] args) throws Exception {
        var context = new AnnotationConfigApplicationContext(Wiring.class);
        Map<String, Runner.Scenario<Scene>> all = new LinkedHashMap<>();
        scenarios(all, (JmsTemplate) context.getBean("queues"), (JmsTemplate) context.getBean("topics"));
        Runner.run(args, "spring-jms", 1, 90, (id, i) -> new Scene("spring", id, i), all);
    }
}
