package busbar;

import java.util.LinkedHashMap;
import java.util.Map;

/** Runs every scenario that the Java SDK can do. */
public final class Main {
    /** How long a scenario may take. */
    static final long LIMIT_SECONDS = Long.parseLong(System.getenv().getOrDefault("BUSBAR_LIMIT", "120"));

    private Main() {
    }

    public static void main(String[] args) throws Exception {
        Map<String, Runner.Scenario<Env>> all = new LinkedHashMap<>();
        Sending.add(all);
        Receiving.add(all);
        Sessions.add(all);
        Ordering.add(all);
        Large.add(all);
        Processors.add(all);
        Administration.add(all);
        Topics.add(all);
        Transactions.add(all);
        Frameworks.add(all);
        Runner.run(args, "azure-messaging-servicebus", 10, LIMIT_SECONDS, Env::new, all);
    }
}
