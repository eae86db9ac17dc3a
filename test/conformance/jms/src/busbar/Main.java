package busbar;

import java.util.LinkedHashMap;
import java.util.Map;

/** Runs every scenario that the JMS client can do. */
public final class Main {
    private Main() {
    }

    public static void main(String[] args) throws Exception {
        Map<String, Runner.Scenario<Env>> all = new LinkedHashMap<>();
        Sending.add(all);
        Receiving.add(all);
        Browsing.add(all);
        Topics.add(all);
        Clients.add(all);
        Transactions.add(all);
        Runner.run(args, "qpid-jms-client", 8, 90, Env::new, all);
    }
}
