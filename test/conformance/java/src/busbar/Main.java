package busbar;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

/**
 * Runs every scenario that the Java SDK can do and prints one line for each:
 * scenario, id, pass or fail or skip, milliseconds, text; separated by tabs.
 */
public final class Main {
    /** What waits for a lock is cheap, so several scenarios run at once. */
    private static final int AT_ONCE = 10;

    private static final long LIMIT_SECONDS = 120;

    /** A scenario. */
    public interface Scenario {
        void run(Env e) throws Exception;
    }

    /** The library has nothing like it. */
    public static final class Skip extends RuntimeException {
        public Skip(String why) {
            super(why);
        }
    }

    private Main() {
    }

    static synchronized void say(Object... fields) {
        StringBuilder line = new StringBuilder();
        for (Object f : fields) {
            line.append(line.length() > 0 ? "\t" : "").append(String.valueOf(f).replaceAll("[\\t\\r\\n]+", " "));
        }
        System.out.println(line);
        System.out.flush();
    }

    public static void main(String[] args) throws Exception {
        Map<String, Scenario> all = new LinkedHashMap<>();
        Sending.add(all);
        Receiving.add(all);
        Sessions.add(all);
        Processors.add(all);
        Administration.add(all);
        Topics.add(all);
        Transactions.add(all);
        Frameworks.add(all);
        String only = System.getenv().getOrDefault("BUSBAR_ONLY", "").trim();
        if (!only.isEmpty()) {
            all.keySet().retainAll(List.of(only.split("\\s+")));
        }
        say("sdk", "azure-messaging-servicebus", version());
        var pool = Executors.newFixedThreadPool(AT_ONCE);
        int index = 0;
        for (var s : all.entrySet()) {
            int i = index++;
            pool.submit(() -> run(s.getKey(), s.getValue(), i));
        }
        pool.shutdown();
        pool.awaitTermination(10, TimeUnit.MINUTES);
        say("end", all.size());
        System.exit(0); // the library keeps threads
    }

    private static String version() {
        for (String jar : System.getProperty("java.class.path").split(":")) {
            int at = jar.indexOf("azure-messaging-servicebus-");
            if (at >= 0) {
                return jar.substring(at + "azure-messaging-servicebus-".length()).replace(".jar", "");
            }
        }
        return "unknown";
    }

    private static void run(String id, Scenario scenario, int index) {
        Env e = new Env(id, index);
        long began = System.nanoTime();
        String state = "pass";
        String text = "";
        var one = Executors.newSingleThreadExecutor();
        Future<?> running = one.submit(() -> {
            scenario.run(e);
            return null;
        });
        try {
            running.get(LIMIT_SECONDS, TimeUnit.SECONDS);
        } catch (Throwable t) {
            Throwable cause = t.getCause() != null ? t.getCause() : t;
            state = cause instanceof Skip ? "skip" : "fail";
            text = cause instanceof Skip ? cause.getMessage() : cause + where(cause);
        }
        one.shutdownNow();
        e.close();
        say("scenario", id, state, (System.nanoTime() - began) / 1_000_000, text);
    }

    private static String where(Throwable t) {
        StringBuilder b = new StringBuilder(" at");
        for (StackTraceElement s : t.getStackTrace()) {
            if (s.getClassName().startsWith("busbar.")) {
                b.append(' ').append(s.getFileName()).append(':').append(s.getLineNumber());
            }
        }
        return b.toString();
    }
}
