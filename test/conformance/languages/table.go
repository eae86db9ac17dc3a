package languages

import (
	"fmt"
	"slices"
	"strings"
)

// Column is one library of the table.
type Column struct {
	Heading string // language and version
	Library string // the name of the package or module
	Wires   []Wire
	Cells   map[string]Outcome // by scenario
}

const preamble = `# Compatibility

What unmodified client libraries do against Busbar, scenario by scenario. ` + "`make compatibility`" + ` writes the
table. ` + "`make conformance`" + ` runs the newest version of each library and fails when a cell of it changes;
` + "`make conformance-full`" + ` runs every version over every wire, with one node and with three. The scenarios
are those of ` + "`test/conformance/scenarios.txt`" + `, the versions those of ` + "`test/conformance/versions.txt`" + `.
**yes**: passes; a number: the library has nothing like it, for the reason below; blank: not written for
this library.

Beside them ` + "`make conformance`" + ` runs what others wrote for the original, as it is: 87 live tests of the Go
SDK ` + "`azservicebus`" + `, 28 conformance cases of ` + "`gocloud.dev`" + `, applications of Celery (its transport
` + "`azureservicebus`" + `), Apache Camel (` + "`azure-servicebus`" + `) and Spring (JMS over Qpid), and KEDA's scaler
` + "`azure-servicebus`" + `, which reads the lengths of queues and subscriptions. They are in ` + "`test/suites`" + `; 17
integration tests of ` + "`go-amqp`" + ` are in ` + "`transport`" + `.

A transaction works on one connection. In the Java SDK 7.15.0 to 7.17.0, senders and blocking receivers of one
builder have a connection each, unless the application sets
` + "`com.azure.messaging.servicebus.nonSession.syncReceive.v2`" + ` and ` + "`…session.syncReceive.v2`" + ` to ` + "`true`" + `. The
scenarios of Java 7.17.0 with transactions set them.

Two defects of SDKs show with large messages, on whatever broker:

- **Python, blocking clients, 7.14 and 7.15: a body may come with two of its frames exchanged, its length being right.**
  The keep-alive thread, which runs every 30 s, reads frames of the connection that the caller reads too. The lock of the
  socket is given up before a frame is used, so the later of two may be used first. Seen with 7.15.0: 64 KiB each, side
  by side, while the frames had come in order. ` + "`" + `test/conformance/python/outoforder.py` + "`" + ` shows it. Set ` + "`" + `keep_alive=0` + "`" + ` on the
  client, or use ` + "`" + `azure.servicebus.aio` + "`" + `, which has no thread. The scenario ` + "`" + `large-message` + "`" + ` sets it.
- **Java, 7.17.20: ` + "`" + `sendMessage` + "`" + ` drops a message that is a little smaller than the link allows, and returns.** A
  batch counts 1,024 bytes in use for each 65,536 that the link allows. A message that does not fit is put into no batch,
  and the log says "Cannot send an EventBatch that is empty". With ` + "`" + `MaxMessageSizeInKilobytes` + "`" + ` 102,400 a
  message, encoded, may have 103,219,200 bytes: a body of 98.43 MiB arrived, one of 98.4375 MiB was not sent. Compare
  Azure/azure-sdk-for-java 33316. The scenario sends 98 MB at most.

Three defects of the Java SDK show on a busy machine, on whatever broker:

- **7.17.20: a blocking receiver of a session can hand out a message before one that it gave back.** It releases what comes
  between two calls of ` + "`" + `receiveMessages` + "`" + ` (` + "`" + `drainLoop` + "`" + ` of ` + "`" + `WindowedSubscriber` + "`" + `). A call that begins in that moment gets the
  messages behind the released one, which have come already. On a machine whose processors were taken by other programs,
  the scenario ` + "`" + `session-order` + "`" + ` failed by that in about one run of ten. Set ` + "`" + `prefetchCount(1)` + "`" + `: then the receiver keeps what comes
  between two calls for the next one, and 24 runs of 24 passed.
- **7.17.0: a blocking ` + "`" + `receiveMessages` + "`" + ` can wait in vain, with its link without credit.** A message that arrives
  after the call that asked for it has ended is given back. Until that is done it counts as asked for (` + "`" + `drainQueue` + "`" + ` of
  ` + "`" + `SynchronousMessageSubscriber` + "`" + `), so a call that begins meanwhile asks for nothing. The next call asks again. Waits of a few
  seconds are the way around; the scenarios of this version wait 2 s at a time. 7.17.1 has another receiver.
- **7.4.2: ` + "`" + `createTransaction` + "`" + ` can fail on a connection for good.** It opens an AMQP session on the thread of the caller
  (` + "`" + `createSession` + "`" + ` of ` + "`" + `ReactorConnection` + "`" + `), while the SDK's reactor uses the same connection. Seven ` + "`" + `begin` + "`" + ` frames of about
  2,900 were never written: the node had every byte that the client had sent, and none of that frame. Version 7.17.20 wrote
  all of 2,500. A new client begins its transactions. The scenarios of 7.4.2 start again then, once.
`

// absentMark begins the reason of a cell that comes from absent.txt.
const absentMark = "absent in this version: "

const totals = `
## In all

A port behind TLS or WebSocket: the version connects to that port of the host only.

| version | library | connects over | pass | does not apply |
| --- | --- | --- | --- | --- |
`

// Render writes the table: scenarios by library, what passes, what ran elsewhere, and the reasons for
// what does not apply. The same results give the same text.
func Render(scenarios []Scenario, columns []Column, elsewhere []Elsewhere) string {
	var b strings.Builder
	b.WriteString(preamble)
	var reasons []string
	group := ""
	for _, s := range scenarios {
		if !told(columns, s.ID) {
			continue
		}
		if s.Group != group {
			group = s.Group
			heading(&b, group, columns)
		}
		fmt.Fprintf(&b, "| %s <!-- %s --> |", s.Title, s.ID)
		for _, c := range columns {
			fmt.Fprintf(&b, " %s |", cell(c.Cells[s.ID], &reasons))
		}
		b.WriteByte('\n')
	}
	b.WriteString(totals)
	for _, c := range columns {
		pass, skip := 0, 0
		for _, o := range c.Cells {
			if o.State == "pass" {
				pass++
			} else {
				skip++
			}
		}
		fmt.Fprintf(&b, "| %s | `%s` | %s | %d | %d |\n", c.Heading, c.Library, wireNames(c.Wires), pass, skip)
	}
	renderElsewhere(&b, elsewhere)
	if len(reasons) > 0 {
		b.WriteString("\n## Reasons\n\n")
		for i, r := range reasons {
			fmt.Fprintf(&b, "%d. %s\n", i+1, r)
		}
	}
	return b.String()
}

// wireNames is how the table tells the ways to connect.
func wireNames(wires []Wire) string {
	names := map[string]string{"plain": "plain", "tls": "TLS", "websocket": "WebSocket"}
	var all []string
	for _, w := range wires {
		all = append(all, strings.TrimSpace(names[w.Name]+" "+w.Port))
	}
	return strings.Join(all, ", ")
}

func told(columns []Column, id string) bool {
	return slices.ContainsFunc(columns, func(c Column) bool {
		_, ok := c.Cells[id]
		return ok
	})
}

func heading(b *strings.Builder, group string, columns []Column) {
	fmt.Fprintf(b, "\n## %s\n\n| scenario |", group)
	for _, c := range columns {
		fmt.Fprintf(b, " %s |", c.Heading)
	}
	b.WriteString("\n| --- |" + strings.Repeat(" --- |", len(columns)) + "\n")
}

// cell is what stands in the table for one outcome; a new reason is added to reasons.
func cell(o Outcome, reasons *[]string) string {
	switch o.State {
	case "":
		return ""
	case "pass":
		return "yes"
	case "skip":
		i := slices.Index(*reasons, o.Text)
		if i < 0 {
			i = len(*reasons)
			*reasons = append(*reasons, o.Text)
		}
		return fmt.Sprint(i + 1)
	}
	return "no"
}
