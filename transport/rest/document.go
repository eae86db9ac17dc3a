package rest

import (
	"bytes"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
)

// Times of entries have seconds; those of descriptions up to seven digits more. Both always end in
// Z: Go wants RFC 3339 for the zero time too.
const (
	atomTime   = "2006-01-02T15:04:05Z"
	exactTime  = "2006-01-02T15:04:05.9999999Z"
	neverTime  = "0001-01-01T00:00:00Z"
	epochTicks = 621_355_968_000_000_000 // 100 ns from year 1 to 1970, the clients' zero
)

func wallTime(at fsm.Wall, layout string) string {
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

// shown is an entity as an answer shows it.
type shown struct {
	d      *fsm.Descriptor
	counts *fsm.EntityCounts // nil if they are not known
	fresh  bool              // created by this request: the service shows no counters and no access yet
	sent   *properties       // of an update: counters in it are shown again, as the service does

	// Of a topic.
	subscriptions, sqlFilters, correlationFilters uint64
}

// entry answers with one description.
func (a *API) entry(q *request, status int, e *shown) *answer {
	p := new(page)
	p.raw(`<entry xmlns="` + atomSpace + `">`)
	a.writeEntry(p, q, e)
	p.raw("</entry>")
	return &answer{
		status: status, contentType: entryType, etag: ticks(e.d.UpdatedAt), body: p.Bytes(),
	}
}

// ticks is an entity tag: when the entity was last changed.
func ticks(at fsm.Wall) string {
	return strconv.FormatInt(int64(at)*ticksPerMilli+epochTicks, 10)
}

// head is what all entries begin with. The title is the name, for Go and .NET; the id is a URL with
// the name as its path, for JavaScript.
type head struct {
	path, title string
	published   fsm.Wall
	updated     fsm.Wall
	author      bool
}

func (a *API) writeHead(p *page, q *request, h head) {
	id := "https://" + q.host + "/" + h.path + q.query.suffix()
	p.tag("id", id)
	p.raw(`<title type="text">`)
	escape(&p.Buffer, h.title)
	p.raw("</title>")
	p.tag("published", wallTime(h.published, atomTime))
	p.tag("updated", wallTime(h.updated, atomTime))
	if h.author {
		p.raw("<author>")
		p.tag("name", a.cfg.Namespace)
		p.raw("</author>")
	}
	p.link("self", id)
	p.raw(`<content type="application/xml">`)
}

// writeEntry writes what an entry holds. Those of subscriptions have no author.
func (a *API) writeEntry(p *page, q *request, e *shown) {
	title := e.d.Name
	if _, name, ok := catalog.SplitSubscription(title); ok && e.d.Kind == fsm.Subscription {
		title = name
	}
	a.writeHead(p, q, head{
		path: q.where.idPath(e.d.Name), title: title, published: e.d.CreatedAt, updated: e.d.UpdatedAt,
		author: e.d.Kind != fsm.Subscription,
	})
	p.raw("<" + descriptionElement(e.d.Kind) + ` xmlns="` + connectSpace + `" xmlns:i="` +
		instanceSpace + `">`)
	switch e.d.Kind {
	case fsm.Queue:
		writeQueue(p, q, e)
	case fsm.Topic:
		writeTopic(p, q, e)
	case fsm.Subscription:
		writeSubscription(p, q, e)
	}
	writeOptions(p, e.d)
	p.raw("</" + descriptionElement(e.d.Kind) + "></content>")
}

// writeQueue writes every property in the service's order: some clients fail on a missing one.
func writeQueue(p *page, q *request, e *shown) {
	d := e.d
	p.tag("LockDuration", formatExact(d.LockDuration, d.AsSent.Lock))
	p.number("MaxSizeInMegabytes", uint64(d.MaxSizeMegabytes))
	p.flag("RequiresDuplicateDetection", d.DetectDuplicates)
	p.flag("RequiresSession", d.RequiresSession)
	p.tag("DefaultMessageTimeToLive", formatExact(d.DefaultTTL, d.AsSent.TTL))
	p.flag("DeadLetteringOnMessageExpiration", d.DeadLetterOnExpiration)
	p.tag("DuplicateDetectionHistoryTimeWindow", formatExact(d.DuplicateWindow, d.AsSent.Window))
	p.number("MaxDeliveryCount", uint64(d.MaxDelivery))
	p.flag("EnableBatchedOperations", d.EnableBatched)
	e.writeSize(p)
	e.writeTotal(p)
	p.flag("IsAnonymousAccessible", d.AsSent.AnonymousAccess)
	writeAuthRules(p, d.AuthRules)
	p.tag("Status", statusName(d.Status))
	e.writeTimes(p)
	p.flag("SupportOrdering", d.SupportOrdering)
	e.writeCounts(p)
	p.tag("AutoDeleteOnIdle", formatExact(d.AutoDeleteOnIdle, d.AsSent.Idle))
	p.flag("EnablePartitioning", d.Partitioned)
	p.tag("EntityAvailabilityStatus", "Available")
	p.flag("EnableExpress", d.EnableExpress)
	if d.ForwardTo != "" {
		p.tag("ForwardTo", forwardURL(q.host, d.ForwardTo))
	}
	writeMetadata(p, d)
	if d.ForwardDeadLettersTo != "" {
		p.tag("ForwardDeadLetteredMessagesTo", forwardURL(q.host, d.ForwardDeadLettersTo))
	}
	writeMessageSize(p, q, d)
}

// writeTopic: of a topic's own counters only the scheduled messages and the size mean something.
func writeTopic(p *page, q *request, e *shown) {
	d := e.d
	p.tag("DefaultMessageTimeToLive", formatExact(d.DefaultTTL, d.AsSent.TTL))
	p.number("MaxSizeInMegabytes", uint64(d.MaxSizeMegabytes))
	p.flag("RequiresDuplicateDetection", d.DetectDuplicates)
	p.tag("DuplicateDetectionHistoryTimeWindow", formatExact(d.DuplicateWindow, d.AsSent.Window))
	p.flag("EnableBatchedOperations", d.EnableBatched)
	e.writeSize(p)
	p.flag("FilteringMessagesBeforePublishing", d.FilterBeforePublish)
	p.flag("IsAnonymousAccessible", d.AsSent.AnonymousAccess)
	writeAuthRules(p, d.AuthRules)
	p.tag("Status", statusName(d.Status))
	e.writeTimes(p)
	p.flag("SupportOrdering", d.SupportOrdering)
	e.writeCounts(p)
	if !e.fresh {
		p.count("SubscriptionCount", e.subscriptions)
	}
	p.tag("AutoDeleteOnIdle", formatExact(d.AutoDeleteOnIdle, d.AsSent.Idle))
	p.flag("EnablePartitioning", d.Partitioned)
	p.tag("EntityAvailabilityStatus", "Available")
	p.flag("EnableSubscriptionPartitioning", d.PartitionSubscriptions)
	p.flag("EnableExpress", d.EnableExpress)
	writeMetadata(p, d)
	writeMessageSize(p, q, d)
	if q.query.atLeast("2024-05") {
		p.count("SqlFilterCount", e.sqlFilters)
		p.count("CorrelationFilterCount", e.correlationFilters)
	}
}

func writeSubscription(p *page, q *request, e *shown) {
	d := e.d
	p.tag("LockDuration", formatExact(d.LockDuration, d.AsSent.Lock))
	p.flag("RequiresSession", d.RequiresSession)
	p.tag("DefaultMessageTimeToLive", formatExact(d.DefaultTTL, d.AsSent.TTL))
	p.flag("DeadLetteringOnMessageExpiration", d.DeadLetterOnExpiration)
	p.flag("DeadLetteringOnFilterEvaluationExceptions", d.DeadLetterOnFilterError)
	e.writeTotal(p)
	p.number("MaxDeliveryCount", uint64(d.MaxDelivery))
	p.flag("EnableBatchedOperations", d.EnableBatched)
	p.tag("Status", statusName(d.Status))
	if d.ForwardTo != "" {
		p.tag("ForwardTo", forwardURL(q.host, d.ForwardTo))
	}
	writeMetadata(p, d)
	e.writeTimes(p)
	e.writeCounts(p)
	if d.ForwardDeadLettersTo != "" {
		p.tag("ForwardDeadLetteredMessagesTo", forwardURL(q.host, d.ForwardDeadLettersTo))
	}
	p.tag("AutoDeleteOnIdle", formatExact(d.AutoDeleteOnIdle, d.AsSent.Idle))
	p.tag("EntityAvailabilityStatus", "Available")
	if q.query.atLeast("2021-05") {
		p.flag("IsClientAffine", false)
	}
}

func total(c *fsm.EntityCounts) uint64 {
	return c.Active + c.Scheduled + c.DeadLetter + c.Transfer + c.TransferDeadLetter
}

// writeSize and writeTotal write a counter, or what the body of an update says of it.
func (e *shown) writeSize(p *page) {
	if e.counts != nil {
		p.number("SizeInBytes", e.counts.SizeBytes)
	} else {
		e.echo(p, "SizeInBytes")
	}
}

func (e *shown) writeTotal(p *page) {
	if e.counts != nil {
		p.count("MessageCount", total(e.counts))
	} else {
		e.echo(p, "MessageCount")
	}
}

// echo shows a number of an update's body again. Clients send back all that they have read.
func (e *shown) echo(p *page, name string) {
	if e.sent == nil || e.sent.elements[name] == nil {
		return
	}
	text := strings.TrimSpace(e.sent.elements[name].text)
	if _, err := strconv.ParseUint(text, 10, 31); err == nil {
		p.tag(name, text)
	}
}

func (e *shown) writeTimes(p *page) {
	p.tag("CreatedAt", wallTime(e.d.CreatedAt, exactTime))
	p.tag("UpdatedAt", wallTime(e.d.UpdatedAt, exactTime))
	if e.fresh {
		return
	}
	accessed := fsm.Wall(0)
	if e.counts != nil {
		accessed = e.counts.AccessedAt
		if accessed == 0 && e.d.Kind == fsm.Subscription {
			accessed = e.d.CreatedAt // the original's has been accessed since it is there
		}
	}
	p.tag("AccessedAt", wallTime(accessed, exactTime))
}

func writeMetadata(p *page, d *fsm.Descriptor) {
	if d.UserMetadata != "" {
		p.tag("UserMetadata", d.UserMetadata)
	}
}

func writeMessageSize(p *page, q *request, d *fsm.Descriptor) {
	if q.query.atLeast("2021-05") {
		p.number("MaxMessageSizeInKilobytes", uint64(d.MaxMessageBytes>>10))
	}
}

// writeCounts: JavaScript wants exactly one attribute and prefixed children.
func (e *shown) writeCounts(p *page) {
	c := e.counts
	if c == nil || e.fresh {
		return
	}
	if e.d.Kind == fsm.Topic {
		c = &fsm.EntityCounts{Scheduled: c.Scheduled}
	}
	p.raw(`<CountDetails xmlns:d2p1="` + countsSpace + `">`)
	p.count("d2p1:ActiveMessageCount", c.Active)
	p.count("d2p1:DeadLetterMessageCount", c.DeadLetter)
	p.count("d2p1:ScheduledMessageCount", c.Scheduled)
	p.count("d2p1:TransferMessageCount", c.Transfer)
	p.count("d2p1:TransferDeadLetterMessageCount", c.TransferDeadLetter)
	p.raw("</CountDetails>")
}

// writeAuthRules includes the keys: who may manage the entity is told them, as by the service.
func writeAuthRules(p *page, rules []fsm.AuthRule) {
	p.raw("<AuthorizationRules>")
	for _, rule := range rules {
		p.raw(`<AuthorizationRule i:type="SharedAccessAuthorizationRule">`)
		p.tag("ClaimType", "SharedAccessKey")
		p.tag("ClaimValue", "None")
		p.raw("<Rights>")
		for _, right := range rule.Rights() {
			p.tag("AccessRights", right)
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
