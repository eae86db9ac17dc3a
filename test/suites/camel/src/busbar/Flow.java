package busbar;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.camel.CamelContext;
import org.apache.camel.ProducerTemplate;
import org.apache.camel.builder.RouteBuilder;
import org.apache.camel.impl.DefaultCamelContext;

/** Routes over Camel's component for the original; one line for each scenario. The entities are there. */
public final class Flow {
    private static final long LIMIT_MS = 60_000;

    private static final List<String> OUT = new CopyOnWriteArrayList<>();
    private static final List<String> DEAD = new CopyOnWriteArrayList<>();
    private static final List<String> EVENTS = new CopyOnWriteArrayList<>();

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

    private static void scenarios(Map<String, Runner.Scenario<Scene>> all, ProducerTemplate producer) {
        all.put("camel-route", e -> {
            for (int i = 0; i < 10; i++) {
                producer.sendBody("direct:start", "order " + i);
            }
            Scene.until("ten messages through two queues", LIMIT_MS, () -> OUT.size() >= 10);
            Scene.check(OUT.stream().distinct().count() == 10 && OUT.stream().allMatch(b -> b.startsWith("ORDER ")),
                "came " + OUT);
        });
        all.put("camel-dead-letter", e -> {
            producer.sendBody("direct:start", "bad one");
            Scene.until("what a route refused", LIMIT_MS, () -> DEAD.contains("bad one"));
        });
        all.put("camel-topic", e -> {
            producer.sendBody("direct:event", "something happened");
            Scene.until("an event", LIMIT_MS, () -> EVENTS.contains("something happened"));
        });
    }

    public static void main(String[] args) throws Exception {
        CamelContext context = new DefaultCamelContext();
        context.addRoutes(new Routes());
        context.start();
        Map<String, Runner.Scenario<Scene>> all = new LinkedHashMap<>();
        scenarios(all, context.createProducerTemplate());
        Runner.run(args, "camel-azure-servicebus", 1, 90, (id, i) -> new Scene("camel", id, i), all);
    }
}
