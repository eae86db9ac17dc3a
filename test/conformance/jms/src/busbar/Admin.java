package busbar;

import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.Map;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/** Creates and deletes entities over the management API: JMS has no words for that. */
final class Admin {
    private static final HttpClient HTTP = HttpClient.newBuilder().connectTimeout(Duration.ofSeconds(20)).build();
    private static final String NAMES = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect";

    private final Map<String, String> parts = new LinkedHashMap<>();
    private final String host;

    Admin(String connectionString) {
        for (String part : connectionString.split(";")) {
            int at = part.indexOf('=');
            parts.put(part.substring(0, at), part.substring(at + 1));
        }
        host = parts.get("Endpoint").replaceAll("^sb://|/$", "");
    }

    private static String quote(String s) {
        return URLEncoder.encode(s, StandardCharsets.UTF_8);
    }

    private String token(String address) throws Exception {
        long expiry = System.currentTimeMillis() / 1000 + 600;
        String resource = quote(address);
        Mac mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(parts.get("SharedAccessKey").getBytes(StandardCharsets.UTF_8), "HmacSHA256"));
        byte[] digest = mac.doFinal((resource + "\n" + expiry).getBytes(StandardCharsets.UTF_8));
        return "SharedAccessSignature sr=" + resource + "&sig=" + quote(Base64.getEncoder().encodeToString(digest))
            + "&se=" + expiry + "&skn=" + parts.get("SharedAccessKeyName");
    }

    /** Puts the description of an entity: its kind, and its elements in the order of the schema. */
    void put(String path, String kind, String elements) throws Exception {
        String body = "<entry xmlns=\"http://www.w3.org/2005/Atom\"><content type=\"application/xml\"><" + kind
            + " xmlns=\"" + NAMES + "\" xmlns:i=\"http://www.w3.org/2001/XMLSchema-instance\">" + elements
            + "</" + kind + "></content></entry>";
        ask("PUT", path, body);
    }

    void delete(String path) throws Exception {
        ask("DELETE", path, "");
    }

    private void ask(String verb, String path, String body) throws Exception {
        String address = "https://" + host + "/" + path;
        HttpRequest request = HttpRequest.newBuilder(URI.create(address + "?api-version=2021-05"))
            .timeout(Duration.ofSeconds(20)).header("Authorization", token(address))
            // For what forwards: the right to send to the target.
            .header("ServiceBusSupplementaryAuthorization", token("https://" + host + "/"))
            .header("ServiceBusDlqSupplementaryAuthorization", token("https://" + host + "/"))
            .header("Content-Type", "application/atom+xml")
            .method(verb, HttpRequest.BodyPublishers.ofString(body)).build();
        HttpResponse<String> answer = HTTP.send(request, HttpResponse.BodyHandlers.ofString());
        if (answer.statusCode() / 100 != 2) {
            throw new IllegalStateException(verb + " " + path + ": " + answer.statusCode() + " " + answer.body());
        }
    }
}
