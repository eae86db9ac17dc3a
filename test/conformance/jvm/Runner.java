package busbar;

import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.function.BiFunction;

/** Runs the scenarios of a library of the Java machine, several at once: what waits for a lock is cheap. */
public final class Runner {
    /** A scenario. */
    public interface Scenario<E extends Scene> {
        void run(E e) throws Exception;
    }

    /** The library, or the original, has nothing like it. */
    public static final class Skip extends RuntimeException {
        public Skip(String why) {
            super(why);
        }
    }

    private Runner() {
    }

    private static synchronized void say(Object... fields) {
        StringBuilder line = new StringBuilder();
        for (Object f : fields) {
            line.append(line.length() > 0 ? "\t" : "").append(String.valueOf(f).replaceAll("[\\t\\r\\n]+", " "));
        }
        System.out.println(line);
        System.out.flush();
    }

    /**
     * Runs every scenario that BUSBAR_ONLY names, or all, without those of BUSBAR_ABSENT, and prints one line for
     * each: scenario, id, pass or fail or skip, milliseconds, text; separated by tabs. With the argument --list it
     * prints the ids and ends. library is the name of its jar before the version; scene makes
     * what a scenario gets from its id and number.
     */
    static <E extends Scene> void run(String[] args, String library, int atOnce, long limitSeconds,
        BiFunction<String, Integer, E> scene, Map<String, Scenario<E>> all) throws Exception {
        if (args.length > 0 && args[0].equals("--list")) {
            all.keySet().forEach(System.out::println);
            System.exit(0);
        }
        if (!ids("BUSBAR_ONLY").isEmpty()) {
            all.keySet().retainAll(ids("BUSBAR_ONLY"));
        }
        all.keySet().removeAll(ids("BUSBAR_ABSENT"));
        say("sdk", library, version(library + "-"));
        var pool = Executors.newFixedThreadPool(atOnce);
        int index = 0;
        for (var s : all.entrySet()) {
            int i = index++;
            pool.submit(() -> {
                try {
                    run(s.getKey(), s.getValue(), scene.apply(s.getKey(), i), limitSeconds);
                } catch (Throwable t) {
                    say("note", s.getKey() + " has no outcome: " + t);
                }
            });
        }
        pool.shutdown();
        if (!pool.awaitTermination(Math.max(600, limitSeconds + 60), TimeUnit.SECONDS)) {
            say("note", "scenarios still run when the time is over");
        }
        say("end", all.size());
        System.exit(0); // whatever threads a library or a failed scenario keeps
    }

    /** The ids of scenarios in a variable of the environment. */
    private static List<String> ids(String variable) {
        String text = System.getenv().getOrDefault(variable, "").trim();
        return text.isEmpty() ? List.of() : List.of(text.split("\\s+"));
    }

    /** The version in the name of the jar that begins with start. */
    static String version(String start) {
        for (String jar : System.getProperty("java.class.path").split(":")) {
            int at = jar.indexOf(start);
            if (at >= 0) {
                return jar.substring(at + start.length()).replace(".jar", "");
            }
        }
        return "unknown";
    }

    private static <E extends Scene> void run(String id, Scenario<E> scenario, E e, long limitSeconds) {
        long began = System.nanoTime();
        String state = "pass";
        String text = "";
        var one = Executors.newSingleThreadExecutor();
        Future<?> running = one.submit(() -> {
            scenario.run(e);
            return null;
        });
        try {
            running.get(limitSeconds, TimeUnit.SECONDS);
        } catch (Throwable t) {
            Throwable cause = t instanceof ExecutionException ? t.getCause() : t;
            state = cause instanceof Skip ? "skip" : "fail";
            text = cause instanceof Skip ? cause.getMessage() : cause + where(cause);
        }
        one.shutdownNow();
        close(e);
        say("scenario", id, state, (System.nanoTime() - began) / 1_000_000, text);
    }

    /** Closes what a scenario keeps, within 20 seconds: an old version of a library may wait for ever. */
    private static void close(Scene e) {
        var closing = Executors.newSingleThreadExecutor();
        Future<?> closed = closing.submit(e::close);
        try {
            closed.get(20, TimeUnit.SECONDS);
        } catch (Exception ignored) {
            // what is left open ends with the process
        }
        closing.shutdownNow();
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
