package busbar;

import jakarta.jms.ConnectionFactory;
import jakarta.jms.Message;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.BooleanSupplier;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.core.SpringVersion;
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

    private interface Scenario {
        void run() throws Exception;
    }

    private static void until(String what, BooleanSupplier check) throws Exception {
        long end = System.currentTimeMillis() + LIMIT_MS;
        while (!check.getAsBoolean()) {
            if (System.currentTimeMillis() > end) {
                throw new AssertionError("waited in vain: " + what + "; " + REPLIES + TRIES + EVENTS);
            }
            Thread.sleep(50);
        }
    }

    private static void run(String id, Scenario scenario) {
        long began = System.currentTimeMillis();
        String state = "pass";
        String text = "";
        try {
            scenario.run();
        } catch (Throwable t) {
            state = "fail";
            text = t.toString().replaceAll("\\s+", " ");
        }
        System.out.println("scenario\t" + id + "\t" + state + "\t" + (System.currentTimeMillis() - began) + "\t" + text);
    }

    public static void main(String[] args) {
        System.out.println("sdk\tspring-jms\t" + SpringVersion.getVersion());
        try (var context = new AnnotationConfigApplicationContext(Wiring.class)) {
            var queues = (JmsTemplate) context.getBean("queues");
            run("spring-listener", () -> {
                for (int i = 0; i < 10; i++) {
                    queues.convertAndSend("spring-orders", "order " + i);
                }
                until("ten replies", () -> REPLIES.size() >= 10);
                if (REPLIES.stream().distinct().count() != 10) {
                    throw new AssertionError("came " + REPLIES);
                }
            });
            run("spring-rollback", () -> {
                queues.convertAndSend("spring-fragile", "x");
                until("a second try", () -> TRIES.size() >= 2);
                if (!TRIES.equals(List.of(1, 2))) {
                    throw new AssertionError("counts " + TRIES);
                }
            });
            run("spring-topic", () -> {
                ((JmsTemplate) context.getBean("topics")).convertAndSend("spring-events", "something happened");
                until("an event", () -> EVENTS.contains("something happened"));
            });
            System.out.println("end\t3");
        }
        System.exit(0);
    }
}
