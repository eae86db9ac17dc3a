package dev.busbar.test;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import java.util.regex.Pattern;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/**
 * A broker for tests: a process of its own on free ports, empty, and gone at the end. {@link BusbarExtension} runs one for the
 * tests of JUnit.
 */
public final class Broker implements AutoCloseable {
    private static final long START_LIMIT = TimeUnit.SECONDS.toNanos(60);
    private static final long STOP_SECONDS = 10;
    private static final String KEY_NAME = "RootManageSharedAccessKey";
    private static final String KEY = "SAS_KEY_VALUE"; // of a broker for development: everybody knows it
    private static final String SCHEMA = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect";
    private static final AtomicInteger NUMBERS = new AtomicInteger();

    private final HttpClient http = HttpClient.newHttpClient();
    private final Path directory;
    private Process process;
    private String container;
    private String amqp;
    private String operations;
    private String lastLog = "";

    private Broker(Path directory) {
        this.directory = directory;
    }

    /** Starts a broker without entities, and waits until it serves. */
    public static Broker start() {
        return start(null, null);
    }

    /**
     * Starts a broker with entities, and waits until it serves.
     *
     * @param entities a file in the form of the official emulator's Config.json
     */
    public static Broker start(Path entities) {
        return start(null, entities);
    }

    /**
     * Starts a broker with entities, and waits until it serves.
     *
     * @param entities the text of a file in the form of the official emulator's Config.json, as JSON or YAML
     */
    public static Broker start(String entities) {
        Path file = null;
        try {
            file = Files.createTempFile("busbartest-", ".json");
            Files.writeString(file, entities);
            return start(null, file);
        } catch (IOException fault) {
            throw new UncheckedIOException(fault);
        } finally {
            remove(file);
        }
    }

    /**
     * Starts a broker, and waits until it serves.
     *
     * @param program the program; null: the variable BUSBAR_BINARY, or busbar on the path, or else a container of the image
     *     that the variable BUSBAR_IMAGE names
     * @param entities a file in the form of the official emulator's Config.json; null: none
     * @throws IllegalStateException the broker ended, or did not serve in time; the text has what it printed
     */
    public static Broker start(Path program, Path entities) {
        return start(program, entities, System.getenv());
    }

    static Broker start(Path program, Path entities, Map<String, String> environment) {
        Broker broker;
        try {
            broker = new Broker(Files.createTempDirectory("busbartest-"));
        } catch (IOException fault) {
            throw new UncheckedIOException(fault);
        }
        try {
            broker.begin(program, entities, environment);
            return broker;
        } catch (IOException | RuntimeException fault) {
            broker.close();
            throw new IllegalStateException((fault.getMessage() + "\n" + broker.log()).strip(), fault);
        }
    }

    /** What a client of Azure Service Bus connects with. */
    public String connectionString() {
        return "Endpoint=sb://" + amqp + ";SharedAccessKeyName=" + KEY_NAME + ";SharedAccessKey=" + KEY + ";UseDevelopmentEmulator=true";
    }

    /** The URL of health, metrics, the management API and the console. */
    public String operations() {
        return operations;
    }

    /** Makes a queue, and returns its name: the prefix and a number. */
    public String queue(String prefix) {
        return queue(prefix, Map.of());
    }

    /**
     * Makes a queue, and returns its name: the prefix and a number.
     *
     * @param properties by the names of the management API, such as LockDuration and PT5S
     */
    public String queue(String prefix, Map<String, ?> properties) {
        var name = prefix + "-" + NUMBERS.incrementAndGet();
        make(name, "QueueDescription", properties);
        return name;
    }

    /** Makes a topic with subscriptions that get every message, and returns its name: the prefix and a number. */
    public String topic(String prefix, String... subscriptions) {
        var name = prefix + "-" + NUMBERS.incrementAndGet();
        make(name, "TopicDescription", Map.of());
        for (var subscription : subscriptions) {
            make(name + "/subscriptions/" + subscription, "SubscriptionDescription", Map.of());
        }
        return name;
    }

    /** Empties every entity, as if each had just been made. Close receivers before. */
    public void reset() {
        ask("POST", "/api/reset", "");
    }

    /** What the broker has printed so far. */
    public String log() {
        try {
            return Files.readString(directory.resolve("log"));
        } catch (IOException gone) {
            return lastLog;
        }
    }

    /** Ends the broker and removes its data. It may be called again. */
    @Override
    public void close() {
        try {
            if (process != null) {
                end();
            }
        } finally {
            lastLog = log();
            remove(directory);
        }
    }

    private void begin(Path given, Path entities, Map<String, String> environment) throws IOException {
        var program = given != null ? given.toString() : environment.getOrDefault("BUSBAR_BINARY", onPath(environment));
        var image = environment.get("BUSBAR_IMAGE");
        var command = new ArrayList<String>();
        if (program != null) {
            command.addAll(List.of(program, "serve", "--dev", "--ephemeral", "--stop-with-stdin", "--log-format", "text",
                    "--ports-file", directory.resolve("ports.json").toString(), "--amqp-listen", "127.0.0.1:0",
                    "--tls-listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0"));
            if (entities != null) {
                command.addAll(List.of("--entities", entities.toAbsolutePath().toString()));
            }
        } else if (image != null) {
            container = "busbartest-" + UUID.randomUUID();
            command.addAll(List.of("docker", "run", "--rm", "-i", "--name", container, "-p", "127.0.0.1::5672", "-p", "127.0.0.1::5300"));
            if (entities != null) {
                command.addAll(List.of("-v", readable(entities) + ":/ServiceBus_Emulator/ConfigFiles/Config.json:ro"));
            }
            command.addAll(List.of(image, "emulator", "--stop-with-stdin"));
        } else {
            throw new IllegalStateException("busbar is not on the path: set BUSBAR_BINARY to the program, or BUSBAR_IMAGE to an image");
        }
        // The broker ends with its standard input, and so with this process, even if this one is killed.
        process = with(environment, command).redirectErrorStream(true).redirectOutput(directory.resolve("log").toFile()).start();
        await("does not listen yet", () -> listens(environment));
        await("is not healthy yet", this::healthy);
    }

    /** A process with an environment. Settings of a node on this machine are none of the test's. */
    private static ProcessBuilder with(Map<String, String> environment, List<String> command) {
        // The class looks for a program on the path of this process, and not of the new one.
        var found = command.get(0).equals("docker") ? search("docker", environment) : null;
        var builder = new ProcessBuilder(command);
        if (found != null) {
            command = new ArrayList<>(command);
            command.set(0, found);
            builder.command(command);
        }
        builder.environment().clear();
        environment.forEach((name, value) -> {
            if (!name.startsWith("BUSBAR_") || name.equals("BUSBAR_STANDIN")) {
                builder.environment().put(name, value);
            }
        });
        return builder;
    }

    /** A copy of a file that the user of a container may read. */
    private Path readable(Path file) throws IOException {
        var copy = Files.copy(file, directory.resolve("Config.json"));
        copy.toFile().setReadable(true, false);
        return copy;
    }

    private static String onPath(Map<String, String> environment) {
        return search("busbar", environment);
    }

    private static String search(String name, Map<String, String> environment) {
        for (var dir : environment.getOrDefault("PATH", "").split(java.io.File.pathSeparator)) {
            for (var ending : List.of("", ".exe")) {
                var file = Path.of(dir, name + ending);
                if (Files.isExecutable(file) && !Files.isDirectory(file)) {
                    return file.toString();
                }
            }
        }
        return null;
    }

    private boolean listens(Map<String, String> environment) {
        String ops;
        if (container != null) {
            amqp = published("5672/tcp", environment);
            ops = published("5300/tcp", environment);
        } else {
            String ports;
            try {
                ports = Files.readString(directory.resolve("ports.json"));
            } catch (IOException notYet) {
                return false;
            }
            amqp = port(ports, "amqp");
            ops = port(ports, "ops");
        }
        operations = "http://" + ops;
        return !amqp.isEmpty() && !ops.isEmpty();
    }

    private static String port(String ports, String of) {
        var found = Pattern.compile("\"" + of + "\":(\\d+).*\\}").matcher(ports);
        return found.find() ? "localhost:" + found.group(1) : "";
    }

    /** Where a port of the container is on this machine, or nothing. */
    private String published(String port, Map<String, String> environment) {
        try {
            var asked = with(environment, List.of("docker", "port", container, port)).redirectError(ProcessBuilder.Redirect.DISCARD).start();
            var said = new String(asked.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
            return said.lines().findFirst().orElse("").strip();
        } catch (IOException fault) {
            throw new UncheckedIOException(fault);
        }
    }

    private boolean healthy() {
        try {
            return send("GET", "/health", "").statusCode() == 200;
        } catch (IOException notYet) {
            return false;
        }
    }

    private void await(String what, BooleanSupplier so) {
        var began = System.nanoTime();
        while (!so.getAsBoolean()) {
            if (!process.isAlive()) {
                throw new IllegalStateException("the broker ended with code " + process.exitValue());
            }
            if (System.nanoTime() - began > START_LIMIT) {
                throw new IllegalStateException("the broker " + what + ", after " + TimeUnit.NANOSECONDS.toSeconds(START_LIMIT) + " s");
            }
            try {
                Thread.sleep(20);
            } catch (InterruptedException stopped) {
                throw interrupted(stopped);
            }
        }
    }

    private void end() {
        try {
            process.getOutputStream().close();
        } catch (IOException ended) {
            // by itself
        }
        try {
            if (!process.waitFor(STOP_SECONDS, TimeUnit.SECONDS)) {
                process.destroyForcibly().waitFor();
                throw new IllegalStateException("the broker did not stop within " + STOP_SECONDS + " s, and was killed");
            }
        } catch (InterruptedException stopped) {
            process.destroyForcibly();
            throw interrupted(stopped);
        }
    }

    private static IllegalStateException interrupted(InterruptedException by) {
        Thread.currentThread().interrupt();
        return new IllegalStateException("interrupted", by);
    }

    private void make(String path, String kind, Map<String, ?> properties) {
        var inner = new StringBuilder();
        new TreeMap<>(properties).forEach((name, value) -> inner.append('<').append(name).append('>')
                .append(String.valueOf(value).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))
                .append("</").append(name).append('>'));
        var made = ask("PUT", "/" + path + "?api-version=2021-05", "<entry xmlns=\"http://www.w3.org/2005/Atom\"><content type=\"application/xml\">"
                + "<" + kind + " xmlns=\"" + SCHEMA + "\">" + inner + "</" + kind + "></content></entry>");
        for (var name : properties.keySet()) { // the service ignores what it does not know, and a test would not notice
            if (!made.contains("<" + name + ">")) {
                throw new IllegalArgumentException("a " + kind + " has no property " + name + "; options of Busbar go into the file of entities");
            }
        }
    }

    private String ask(String method, String path, String body) {
        HttpResponse<String> answer;
        try {
            answer = send(method, path, body);
        } catch (IOException fault) {
            throw new UncheckedIOException(fault);
        }
        if (answer.statusCode() > 299) {
            throw new IllegalArgumentException(method + " " + path + ": " + answer.statusCode() + ": " + answer.body());
        }
        return answer.body();
    }

    private HttpResponse<String> send(String method, String path, String body) throws IOException {
        var request = HttpRequest.newBuilder(URI.create(operations + path)).header("Authorization", token(operations))
                .header("Content-Type", "application/atom+xml").method(method, HttpRequest.BodyPublishers.ofString(body)).build();
        try {
            return http.send(request, HttpResponse.BodyHandlers.ofString());
        } catch (InterruptedException stopped) {
            throw interrupted(stopped);
        }
    }

    /** A shared access signature for the whole broker, good for an hour. */
    private static String token(String of) {
        var until = Instant.now().getEpochSecond() + 3600;
        var where = URLEncoder.encode(of, StandardCharsets.UTF_8);
        try {
            var mac = Mac.getInstance("HmacSHA256");
            mac.init(new SecretKeySpec(KEY.getBytes(StandardCharsets.UTF_8), "HmacSHA256"));
            var signature = Base64.getEncoder().encodeToString(mac.doFinal((where + "\n" + until).getBytes(StandardCharsets.UTF_8)));
            return "SharedAccessSignature sr=" + where + "&sig=" + URLEncoder.encode(signature, StandardCharsets.UTF_8) + "&se=" + until + "&skn=" + KEY_NAME;
        } catch (GeneralSecurityException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    private static void remove(Path path) {
        if (path == null || !Files.exists(path)) {
            return;
        }
        try (var all = Files.walk(path)) {
            all.sorted(Comparator.reverseOrder()).forEach(p -> p.toFile().delete());
        } catch (IOException fault) {
            throw new UncheckedIOException(fault);
        }
    }
}
