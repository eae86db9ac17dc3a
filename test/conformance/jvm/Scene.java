package busbar;

import java.util.ArrayDeque;
import java.util.Deque;
import java.util.Objects;
import java.util.UUID;
import java.util.concurrent.Callable;

/** What every scenario gets: names of its own, what it closes at its end, and words for what it expects. */
public class Scene implements AutoCloseable {
    /** Bounds the wait for what must come, in milliseconds. */
    public static final long SOON_MS = 20_000;

    /** The number of the scenario: the nodes are taken in turn. */
    protected final int index;
    private final String prefix;
    private final Deque<AutoCloseable> closers = new ArrayDeque<>();
    private int made;

    public Scene(String library, String id, int index) {
        this.index = index;
        this.prefix = library + "-" + id + "-" + UUID.randomUUID().toString().substring(0, 8);
    }

    /** Line i of a variable of the environment that has one for each node. */
    protected static String line(String name, int i) {
        String[] all = System.getenv(name).split("\n");
        return all[i % all.length];
    }

    public <T extends AutoCloseable> T keep(T closer) {
        closers.push(closer);
        return closer;
    }

    public String name(String kind) {
        return prefix + "-" + kind + ++made;
    }

    public static void check(boolean ok, String text) {
        if (!ok) {
            throw new AssertionError(text);
        }
    }

    public static void equal(Object got, Object want, String what) {
        check(Objects.equals(got, want), what + " " + got + ", want " + want);
    }

    public static void until(String what, Callable<Boolean> check) throws Exception {
        until(what, SOON_MS, check);
    }

    public static void until(String what, long limit, Callable<Boolean> check) throws Exception {
        long end = System.nanoTime() + limit * 1_000_000;
        while (!check.call()) {
            check(System.nanoTime() < end, "waited in vain: " + what);
            Thread.sleep(50);
        }
    }

    @Override
    public void close() {
        while (!closers.isEmpty()) {
            try {
                closers.pop().close();
            } catch (Exception ignored) {
                // the scenario has closed it itself, or has failed already
            }
        }
    }
}
