package busbar;

import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.BooleanSupplier;
import org.apache.camel.CamelContext;
import org.apache.camel.builder.RouteBuilder;
import org.apache.camel.impl.DefaultCamelContext;

/** Routes over Camel's component for the original; one line for each scenario. The entities are there. */
public final class Flow {
    private static final long LIMIT_MS = 60_000;

    private static final List<String> OUT = new CopyOnWriteArrayList<>();
    private static final List<String> DEAD = new CopyOnWriteArrayList<>();
    private static final List<String> EVENTS = new CopyOnWriteArrayList<>();

    private interface Scenario {
        void run() throws Exception;
    }

    private static CamelContext context;

    private Flow() {
    }

    private static String at(String entity, String options) {
        return "azure-servicebus:" + entity + "?connectionString=RAW(" + System.getenv("BUSBAR_DATA") + ")" + options;
    }

    private static final class Routes extends RouteBuilder {
        @Override
        public void configure() {
            from("direct:start").to(at("camel-in", ""));
            from(at("camel-in", "&maxConcurrentCalls=4&enableDeadLettering=true")).process(x -> {
                String body = x.getIn().getBody(String.class);
                if (body.startsWith("bad")) {
                    throw new IllegalStateException("refused");
                }
                x.getIn().setBody(body.toUpperCase());
            }).to(at("camel-out", ""));
            from(at("camel-out", "")).process(x -> OUT.add(x.getIn().getBody(String.class)));
            from(at("camel-in", "&subQueue=DEAD_LETTER_QUEUE"))
                .process(x -> DEAD.add(x.getIn().getBody(String.class)));
            from("direct:event").to(at("camel-events", "&serviceBusType=topic"));
            from(at("camel-events", "&serviceBusType=topic&subscriptionName=all"))
                .process(x -> EVENTS.add(x.getIn().getBody(String.class)));
        }
    }

    private static void until(String what, BooleanSupplier check) throws Exception {
        long end = System.currentTimeMillis() + LIMIT_MS;
        while (!check.getAsBoolean()) {
            if (System.currentTimeMillis() > end) {
                throw new AssertionError("waited in vain: " + what + "; " + OUT + DEAD + EVENTS);
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

    public static void main(String[] args) throws Exception {
        context = new DefaultCamelContext();
        context.addRoutes(new Routes());
        context.start();
        System.out.println("sdk\tcamel-azure-servicebus\t" + context.getVersion());
        var producer = context.createProducerTemplate();
        run("camel-route", () -> {
            for (int i = 0; i < 10; i++) {
                producer.sendBody("direct:start", "order " + i);
            }
            until("ten messages through two queues", () -> OUT.size() >= 10);
            if (OUT.stream().distinct().count() != 10 || !OUT.stream().allMatch(b -> b.startsWith("ORDER "))) {
                throw new AssertionError("came " + OUT);
            }
        });
        run("camel-dead-letter", () -> {
            producer.sendBody("direct:start", "bad one");
            until("what a route refused", () -> DEAD.contains("bad one"));
        });
        run("camel-topic", () -> {
            producer.sendBody("direct:event", "something happened");
            until("an event", () -> EVENTS.contains("something happened"));
        });
        System.out.println("end\t3");
        context.stop();
        System.exit(0);
    }
}
