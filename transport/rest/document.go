package rest

import (
	"bytes"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/busbar-mq/busbar/fsm"
)

// Times of entries have seconds; those of descriptions up to seven digits more. Both always end in
// Z: Go wants RFC 3339 for the zero time too.
const (
	atomTime   = "2006-01-02T15:04:05Z"
	exactTime  = "2006-01-02T15:04:05.9999999Z"
	neverTime  = "0001-01-01T00:00:00Z"
	epochTicks = 621_355_968_000_000_000 // 100 ns from year 1 to 1970, the clients' zero
)

func wallTime(at fsm.Millis, layout string) string {
	if at == 0 {
		return neverTime
	}
	return time.UnixMilli(int64(at)).UTC().Format(layout)
}

// page writes XML; every text that is not a constant goes through escape.
type page struct{ bytes.Buffer }

func (p *page) raw(text string) { p.WriteString(text) }

func (p *page) tag(name, value string) {
	p.raw("<" + name + ">")
	escape(&p.Buffer, value)
	p.raw("</" + name + ">")
}

func (p *page) flag(name string, value bool) { p.tag(name, strconv.FormatBool(value)) }

func (p *page) number(name string, value uint64) {
	p.tag(name, strconv.FormatUint(min(value, math.MaxInt64), 10))
}

// count writes a counter. The Go client reads 32 bits and fails beyond.
func (p *page) count(name string, value uint64) { p.number(name, min(value, math.MaxInt32)) }

func (p *page) link(rel, href string) {
	p.raw(`<link rel="` + rel + `" href="`)
	escape(&p.Buffer, href)
	p.raw(`"/>`)
}

// entry answers with one description. counts is nil if they are not known.
func (a *API) entry(
	q *request, status int, d *fsm.Descriptor, counts *fsm.EntityCounts,
) *answer {
	p := new(page)
	p.raw(`<entry xmlns="` + atomSpace + `">`)
	a.writeEntry(p, q, d, counts)
	p.raw("</entry>")
	ticks := int64(d.UpdatedAt)*ticksPerMilli + epochTicks
	return &answer{
		status: status, contentType: entryType, etag: strconv.FormatInt(ticks, 10), body: p.Bytes(),
	}
}

// writeEntry writes what an entry holds. The title is the name, for Go and .NET; the id is a URL
// with the name as its path, for JavaScript.
func (a *API) writeEntry(p *page, q *request, d *fsm.Descriptor, counts *fsm.EntityCounts) {
	id := "https://" + q.host + "/" + d.Name + q.query.suffix()
	p.tag("id", id)
	p.raw(`<title type="text">`)
	escape(&p.Buffer, d.Name)
	p.raw("</title>")
	p.tag("published", wallTime(d.CreatedAt, atomTime))
	p.tag("updated", wallTime(d.UpdatedAt, atomTime))
	p.raw("<author>")
	p.tag("name", a.cfg.Namespace)
	p.raw("</author>")
	p.link("self", id)
	p.raw(`<content type="application/xml">`)
	a.writeQueue(p, q, d, counts)
	p.raw("</content>")
}

// writeQueue writes every property in the service's order: some clients fail on a missing one.
func (a *API) writeQueue(p *page, q *request, d *fsm.Descriptor, counts *fsm.EntityCounts) {
	p.raw(`<QueueDescription xmlns="` + connectSpace + `" xmlns:i="` + instanceSpace + `">`)
	p.tag("LockDuration", formatDuration(d.LockDuration))
	p.number("MaxSizeInMegabytes", uint64(d.MaxSizeMegabytes))
	p.flag("RequiresDuplicateDetection", d.DetectDuplicates)
	p.flag("RequiresSession", d.RequiresSession)
	p.tag("DefaultMessageTimeToLive", formatDuration(d.DefaultTTL))
	p.flag("DeadLetteringOnMessageExpiration", d.DeadLetterOnExpiration)
	p.tag("DuplicateDetectionHistoryTimeWindow", formatDuration(d.DuplicateWindow))
	p.number("MaxDeliveryCount", uint64(d.MaxDelivery))
	p.flag("EnableBatchedOperations", d.EnableBatched)
	if counts != nil {
		p.number("SizeInBytes", counts.SizeBytes)
		p.count("MessageCount", counts.Active+counts.Scheduled+counts.DeadLetter+
			counts.Transfer+counts.TransferDeadLetter)
	}
	p.flag("IsAnonymousAccessible", false)
	writeRules(p, d.AuthRules)
	p.tag("Status", statusName(d.Status))
	p.tag("CreatedAt", wallTime(d.CreatedAt, exactTime))
	p.tag("UpdatedAt", wallTime(d.UpdatedAt, exactTime))
	accessed := fsm.Millis(0)
	if counts != nil {
		accessed = counts.AccessedAt
	}
	p.tag("AccessedAt", wallTime(accessed, exactTime))
	p.flag("SupportOrdering", d.SupportOrdering)
	if counts != nil {
		writeCounts(p, counts)
	}
	p.tag("AutoDeleteOnIdle", formatDuration(d.AutoDeleteOnIdle))
	p.flag("EnablePartitioning", d.Partitioned)
	p.tag("EntityAvailabilityStatus", "Available")
	p.flag("EnableExpress", d.EnableExpress)
	if d.ForwardTo != "" {
		p.tag("ForwardTo", forwardURL(q.host, d.ForwardTo))
	}
	if d.UserMetadata != "" {
		p.tag("UserMetadata", d.UserMetadata)
	}
	if d.ForwardDeadLettersTo != "" {
		p.tag("ForwardDeadLetteredMessagesTo", forwardURL(q.host, d.ForwardDeadLettersTo))
	}
	if q.query.atLeast("2021-05") {
		p.number("MaxMessageSizeInKilobytes", uint64(d.MaxMessageBytes>>10))
	}
	p.raw("</QueueDescription>")
}

// writeCounts: JavaScript wants exactly one attribute and prefixed children.
func writeCounts(p *page, c *fsm.EntityCounts) {
	p.raw(`<CountDetails xmlns:d2p1="` + countsSpace + `">`)
	p.count("d2p1:ActiveMessageCount", c.Active)
	p.count("d2p1:DeadLetterMessageCount", c.DeadLetter)
	p.count("d2p1:ScheduledMessageCount", c.Scheduled)
	p.count("d2p1:TransferMessageCount", c.Transfer)
	p.count("d2p1:TransferDeadLetterMessageCount", c.TransferDeadLetter)
	p.raw("</CountDetails>")
}

// writeRules includes the keys: who may manage the entity is told them, as by the service.
func writeRules(p *page, rules []fsm.AuthRule) {
	p.raw("<AuthorizationRules>")
	for _, rule := range rules {
		p.raw(`<AuthorizationRule i:type="SharedAccessAuthorizationRule">`)
		p.tag("ClaimType", "SharedAccessKey")
		p.tag("ClaimValue", "None")
		p.raw("<Rights>")
		for _, right := range [...]struct {
			has  bool
			name string
		}{{rule.Manage, "Manage"}, {rule.Listen, "Listen"}, {rule.Send, "Send"}} {
			if right.has {
				p.tag("AccessRights", right.name)
			}
		}
		p.raw("</Rights>")
		if rule.CreatedAt != 0 {
			p.tag("CreatedTime", wallTime(rule.CreatedAt, exactTime))
		}
		if rule.ModifiedAt != 0 {
			p.tag("ModifiedTime", wallTime(rule.ModifiedAt, exactTime))
		}
		p.tag("KeyName", rule.Name)
		p.tag("PrimaryKey", rule.PrimaryKey)
		p.tag("SecondaryKey", rule.SecondaryKey)
		p.raw("</AuthorizationRule>")
	}
	p.raw("</AuthorizationRules>")
}

func statusName(s fsm.Status) string {
	if int(s) < len(statuses) {
		return statuses[s]
	}
	return "Unknown"
}

// forwardURL makes a bare name absolute, as the service answers; a URL is the client's own.
func forwardURL(host, value string) string {
	if strings.Contains(value, "://") {
		return value
	}
	return "sb://" + host + "/" + value
}

// feed writes one page. Python wants the self link first, the next link second and no other.
func (a *API) feed(
	q *request, title string, found []*fsm.Descriptor, counts []*fsm.EntityCounts, more bool,
) []byte {
	p := new(page)
	self := "https://" + q.host + q.http.URL.RequestURI()
	p.raw(`<feed xmlns="` + atomSpace + `"><title type="text">` + title + "</title>")
	p.tag("id", self)
	p.tag("updated", a.deps.Now().UTC().Format(atomTime))
	p.link("self", self)
	if more {
		next := fmt.Sprintf("https://%s/$Resources/%s?$skip=%d&$top=%d", q.host, title,
			q.query.skip+len(found), q.query.top)
		if version := strings.TrimPrefix(q.query.suffix(), "?"); version != "" {
			next += "&" + version
		}
		p.link("next", next)
	}
	for i, d := range found {
		p.raw(`<entry xml:base="`)
		escape(&p.Buffer, self)
		p.raw(`">`)
		a.writeEntry(p, q, d, counts[i])
		p.raw("</entry>")
	}
	p.raw("</feed>")
	return p.Bytes()
}

// emptyFeed is the answer for what is not there (RUL-6); Go knows it by its title.
func (a *API) emptyFeed() *answer {
	p := new(page)
	p.raw(`<feed xmlns="` + atomSpace + `"><title type="text">Publicly Listed Services</title>` +
		`<subtitle type="text">This is the list of publicly-listed services currently available.` +
		`</subtitle>`)
	p.tag("id", "uuid:"+uuid.NewString()+";id=1")
	p.tag("updated", a.deps.Now().UTC().Format(atomTime))
	p.raw("<generator>Service Bus 1.1</generator></feed>")
	return &answer{status: http.StatusOK, contentType: feedType, body: p.Bytes()}
}

func (a *API) namespaceEntry(q *request) []byte {
	p := new(page)
	id := "https://" + q.host + "/$namespaceinfo" + q.query.suffix()
	p.raw(`<entry xmlns="` + atomSpace + `">`)
	p.tag("id", id)
	p.raw(`<title type="text">`)
	escape(&p.Buffer, a.cfg.Namespace)
	p.raw("</title>")
	created := a.cfg.CreatedAt.UTC()
	p.tag("updated", created.Format(atomTime))
	p.raw("<author>")
	p.tag("name", a.cfg.Namespace)
	p.raw("</author>")
	p.link("self", id)
	p.raw(`<content type="application/xml"><NamespaceInfo xmlns="` + connectSpace +
		`" xmlns:i="` + instanceSpace + `">`)
	p.tag("CreatedTime", created.Format(exactTime))
	p.tag("MessagingSKU", "Standard")
	p.tag("ModifiedTime", created.Format(exactTime))
	p.tag("Name", a.cfg.Namespace)
	p.tag("NamespaceType", "Messaging")
	p.raw("</NamespaceInfo></content></entry>")
	return p.Bytes()
}
