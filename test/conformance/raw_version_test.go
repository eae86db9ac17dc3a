package conformance

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/busbar-mq/busbar/test/cluster"
	"github.com/busbar-mq/busbar/test/conformance/raw"
	"github.com/busbar-mq/busbar/transport/auth"
)

const (
	newVersion = "2024-05" // of .NET 7.21 and Go 1.11.0
	oldVersion = "2021-05"
)

// manage sends a request for a description to node i over the case's wire: in plain text, or with TLS to the port
// that WebSocket clients use as well. It returns the body of an answer of the wanted status.
func (e *rawEnv) manage(i, status int, method, path, version, body string) string {
	e.Helper()
	n := e.node(i)
	base, transport := "http://"+n.AMQP, &http.Transport{DisableKeepAlives: true}
	if e.wire != raw.Plain {
		cfg, err := n.TLSConfig()
		e.must("read the certificate", err)
		base, transport.TLSClientConfig = "https://"+n.TLS, &tls.Config{RootCAs: cfg.RootCAs, ServerName: cfg.ServerName}
	}
	content := ""
	if body != "" {
		content = `<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">` + body + `</content></entry>`
	}
	req, err := http.NewRequestWithContext(e.ctx, method, base+"/"+path+"?api-version="+version, strings.NewReader(content))
	e.must("make a request", err)
	req.Header.Set("Authorization", auth.NewToken(base, cluster.KeyName, cluster.Key, time.Now().Add(time.Hour)))
	req.Header.Set("Content-Type", "application/atom+xml")
	if method == http.MethodPut && status == http.StatusOK {
		req.Header.Set("If-Match", "*") // an update
	}
	res, err := transport.RoundTrip(req)
	e.must(method+" "+path, err)
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	e.must("read the answer", err)
	e.check(res.StatusCode == status, "%s %s at %s: %s, want %d: %s", method, path, version, res.Status, status, text)
	return string(text)
}

// description is an element of the management API with elements inside.
func description(name, inside string) string {
	return fmt.Sprintf(`<%sDescription xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect" `+
		`xmlns:i="http://www.w3.org/2001/XMLSchema-instance">%s</%sDescription>`, name, inside, name)
}

// filterCounts are the elements that 2024-05 adds to a topic, right behind the size of its messages.
var filterCounts = regexp.MustCompile(`(</MaxMessageSizeInKilobytes>)<SqlFilterCount>(\d+)</SqlFilterCount>` +
	`<CorrelationFilterCount>(\d+)</CorrelationFilterCount>`)

// moments are the times of a description, which reading it may change.
var moments = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z`)

// asOlder is a description at 2024-05 as 2021-05 must show it.
func asOlder(text string) string {
	return moments.ReplaceAllString(strings.ReplaceAll(filterCounts.ReplaceAllString(text, "$1"), newVersion, oldVersion), "T")
}

// S-348: descriptions are created, changed, read, listed and deleted at 2024-05 on every node; a topic has the counts
// of its filters there, and all else is as at 2021-05.
func rawNewVersion(e *rawEnv) {
	topic, queue := e.name(), e.name()
	sub := topic + "/Subscriptions/s"
	e.manage(0, http.StatusCreated, "PUT", queue, newVersion, description("Queue", "<MaxDeliveryCount>7</MaxDeliveryCount>"))
	e.manage(0, http.StatusCreated, "PUT", topic, newVersion, description("Topic", ""))
	e.manage(0, http.StatusCreated, "PUT", sub, newVersion, description("Subscription", ""))
	e.manage(0, http.StatusOK, "PUT", topic, newVersion, description("Topic", "<UserMetadata>changed</UserMetadata>"))
	rules := []string{"$Default"}
	count := func(sql, correlation int) {
		for i := range e.cluster.Nodes {
			text := e.manage(i, http.StatusOK, "GET", topic, newVersion, "")
			got := filterCounts.FindStringSubmatch(text)
			e.check(got != nil && got[2] == fmt.Sprint(sql) && got[3] == fmt.Sprint(correlation),
				"node %d, with the rules %v: want %d SQL and %d correlation filters in %s", i, rules, sql, correlation, text)
			e.check(strings.Contains(text, "<UserMetadata>changed</UserMetadata>"), "the update is not in %s", text)
			older := e.manage(i, http.StatusOK, "GET", topic, oldVersion, "")
			e.check(!strings.Contains(older, "FilterCount"), "2021-05 shows filter counts: %s", older)
			e.check(asOlder(text) == moments.ReplaceAllString(older, "T"), "2024-05 is\n%s\n2021-05 is\n%s", text, older)
		}
	}
	count(1, 0) // the rule that takes everything is one of SQL
	for i, filter := range []string{
		`<Filter i:type="SqlFilter"><SqlExpression>a = 1</SqlExpression><CompatibilityLevel>20</CompatibilityLevel></Filter>`,
		`<Filter i:type="CorrelationFilter"><CorrelationId>x</CorrelationId></Filter>`,
		`<Filter i:type="CorrelationFilter"><Label>y</Label></Filter>`,
	} {
		name := fmt.Sprint("r", i)
		rules = append(rules, name)
		e.manage(0, http.StatusCreated, "PUT", sub+"/Rules/"+name, newVersion, description("Rule", filter+
			`<Action i:type="EmptyRuleAction"/><Name>`+name+`</Name>`))
	}
	count(2, 2)
	e.manage(0, http.StatusOK, "DELETE", sub+"/Rules/r1", newVersion, "")
	count(2, 1)
	for _, path := range []string{queue, sub, sub + "/Rules/r0", topic + "/Subscriptions", sub + "/Rules"} {
		newer := e.manage(0, http.StatusOK, "GET", path, newVersion, "")
		older := e.manage(0, http.StatusOK, "GET", path, oldVersion, "")
		e.check(!strings.Contains(newer, "FilterCount") && asOlder(newer) == moments.ReplaceAllString(older, "T"),
			"%s: 2024-05 is\n%s\n2021-05 is\n%s", path, newer, older)
	}
	e.manage(0, http.StatusOK, "DELETE", topic, newVersion, "")
	e.manage(0, http.StatusOK, "DELETE", queue, newVersion, "")
	gone := e.manage(0, http.StatusOK, "GET", queue, newVersion, "") // an empty feed says that there is none
	e.check(strings.Contains(gone, "<feed") && !strings.Contains(gone, "<entry"), "a queue that is gone: %s", gone)
}
