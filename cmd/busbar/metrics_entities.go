package main

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition"
)

// metricsEntitiesPath is where GET tells the metrics of the entities that ?match= names, however many there are.
const metricsEntitiesPath = "/metrics/entities"

// entityRow is one entity as this node sees it: shares that it leads, and links of its own clients.
type entityRow struct {
	partition.EntityMetrics
	leads              bool // a share; without one only the links are known
	receivers, senders int
}

// entityMetric is one family of the metrics of entities.
type entityMetric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	tell func(e *entityRow, now time.Time, tell func(value float64, labels ...string))
}

// entityMetrics are the families, in the order of the operators' page.
func entityMetrics() []entityMetric {
	type teller = func(value float64, labels ...string)
	family := func(kind prometheus.ValueType, name, help string, label []string, tell func(*entityRow, time.Time, teller)) entityMetric {
		return entityMetric{prometheus.NewDesc("busbar_entity_"+name, help, append([]string{"entity"}, label...), nil), kind, tell}
	}
	gauge := func(name, help string, label []string, tell func(*entityRow, time.Time, teller)) entityMetric {
		return family(prometheus.GaugeValue, name, help, label, tell)
	}
	led := func(of func(e *entityRow) float64) func(*entityRow, time.Time, teller) {
		return func(e *entityRow, _ time.Time, tell teller) {
			if e.leads {
				tell(of(e))
			}
		}
	}
	counter := func(name, help string, of func(t *fsm.Tally) uint64) entityMetric {
		return family(prometheus.CounterValue, name, help, nil, led(func(e *entityRow) float64 { return float64(of(&e.Tally)) }))
	}
	sides := func(name, help string, of func(t *fsm.Tally) *[fsm.Sides]uint64) entityMetric {
		return family(prometheus.CounterValue, name, help, []string{"subqueue"}, func(e *entityRow, _ time.Time, tell teller) {
			for side, n := range of(&e.Tally) {
				if e.leads && e.Kind != fsm.Topic && (side == int(fsm.SideMain) || n > 0) {
					tell(float64(n), sideNames[side])
				}
			}
		})
	}
	return []entityMetric{
		gauge("messages", "Messages of the entity, by state. Each message has one state.", []string{"state"}, tellStates),
		gauge("locks", "Messages of the queue proper that are locked, by themselves or with their session.", nil,
			led(func(e *entityRow) float64 { return float64(e.Counts.Locked) })),
		gauge("sessions", "Sessions with messages or a state.", nil, led(func(e *entityRow) float64 { return float64(e.Counts.Sessions) })),
		gauge("oldest_message_age_seconds", "Age of the oldest message that can be received or is locked. None without such a message.",
			[]string{"subqueue"}, tellAges),
		gauge("size_bytes", "Bytes stored. A topic has those of its subscriptions, too.", nil,
			led(func(e *entityRow) float64 { return float64(e.Counts.SizeBytes) })),
		gauge("size_max_bytes", "Bytes that may be stored. None for an entity without a quota.", nil,
			func(e *entityRow, _ time.Time, tell teller) {
				if e.Quota > 0 {
					tell(float64(e.Quota))
				}
			}),
		gauge("receivers", "Links of clients of this node that receive from the entity or its dead letters.", nil,
			func(e *entityRow, _ time.Time, tell teller) { tell(float64(e.receivers)) }),
		gauge("senders", "Links of clients of this node that send to the entity.", nil,
			func(e *entityRow, _ time.Time, tell teller) { tell(float64(e.senders)) }),
		counter("messages_in_total", "Messages accepted: sent, copied from a topic, or moved from another entity.",
			func(t *fsm.Tally) uint64 { return t.In }),
		counter("bytes_in_total", "Bytes of these messages as they are stored.", func(t *fsm.Tally) uint64 { return t.InBytes }),
		sides("messages_out_total", "Deliveries to receivers. Each delivery of a message counts.",
			func(t *fsm.Tally) *[fsm.Sides]uint64 { return &t.Out }),
		sides("bytes_out_total", "Bytes of these deliveries.", func(t *fsm.Tally) *[fsm.Sides]uint64 { return &t.OutBytes }),
		sides("completed_total", "Messages completed, or received and deleted.", func(t *fsm.Tally) *[fsm.Sides]uint64 { return &t.Completed }),
		sides("abandoned_total", "Deliveries that receivers gave back.", func(t *fsm.Tally) *[fsm.Sides]uint64 { return &t.Abandoned }),
		sides("deferred_total", "Messages that receivers deferred.", func(t *fsm.Tally) *[fsm.Sides]uint64 { return &t.Deferred }),
		counter("locks_lost_total", "Deliveries whose lock ran out, or that of their session.", func(t *fsm.Tally) uint64 { return t.Unlocked }),
		counter("expired_total", "Messages whose time to live ended, dead-lettered or not.", func(t *fsm.Tally) uint64 { return t.Expired }),
		family(prometheus.CounterValue, "dead_lettered_total", "Messages dead-lettered, by reason.", []string{"reason"}, tellDeaths),
		family(prometheus.CounterValue, "dropped_total", "Messages that ended without being completed, by reason, since the entity was made.",
			[]string{"reason"}, tellDrops),
		counter("activated_total", "Scheduled messages whose time came.", func(t *fsm.Tally) uint64 { return t.Activated }),
		counter("forwarded_total", "Messages moved to another entity, which took them.", func(t *fsm.Tally) uint64 { return t.Forwarded }),
	}
}

var sideNames = [fsm.Sides]string{fsm.SideMain: "main", fsm.SideDead: "dead-letter"}

// tellStates tells disjoint states, so that their sum is what is stored.
func tellStates(e *entityRow, _ time.Time, tell func(float64, ...string)) {
	if !e.leads {
		return
	}
	c := &e.Counts
	tell(float64(c.Scheduled), "scheduled")
	if e.Kind == fsm.Topic {
		return
	}
	tell(float64(c.Active-min(c.Active, c.Deferred)), "active")
	tell(float64(c.Deferred), "deferred")
	tell(float64(c.DeadLetter), "dead-letter")
	tell(float64(c.Transfer), "transfer")
	tell(float64(c.TransferDeadLetter), "transfer-dead-letter")
}

func tellAges(e *entityRow, now time.Time, tell func(float64, ...string)) {
	for side, at := range e.Oldest {
		if at != 0 {
			tell(max(0, now.Sub(time.UnixMilli(int64(at))).Seconds()), sideNames[side])
		}
	}
}

// tellDeaths has a series for the common reasons before there is one to count, because a rate needs the zero.
func tellDeaths(e *entityRow, _ time.Time, tell func(float64, ...string)) {
	if !e.leads || e.Kind == fsm.Topic {
		return
	}
	for why, n := range e.Tally.Died {
		if n > 0 || why <= int(fsm.DeathExpired) {
			tell(float64(n), fsm.Death(why).String())
		}
	}
}

// tellDrops has a series for each reason in alertDrops, also while nothing was dropped. Prometheus computes an increase from two
// values, so a series that began with its first drop would raise no alert for that one.
func tellDrops(e *entityRow, _ time.Time, tell func(float64, ...string)) {
	for why, n := range e.Counts.Dropped {
		if e.leads && (n > 0 || slices.Contains(alertDrops[e.Kind], fsm.DropReason(why))) {
			tell(float64(n), fsm.DropReason(why).String())
		}
	}
}

// alertDrops are the reasons of the alert BusbarMessagesDropped, for each kind of entity those that it may have.
var alertDrops = map[fsm.EntityKind][]fsm.DropReason{
	fsm.Queue:        {fsm.DropMaxDelivery, fsm.DropExpired, fsm.DropQuota, fsm.DropForward},
	fsm.Topic:        {fsm.DropExpired, fsm.DropQuota},
	fsm.Subscription: {fsm.DropMaxDelivery, fsm.DropExpired, fsm.DropForward, fsm.DropFilter, fsm.DropSession},
}

// entitySource tells what the node knows of its entities now.
type entitySource interface {
	entities() map[fsm.EntityID]*entityRow
}

// entities implements entitySource.
func (n *node) entities() map[fsm.EntityID]*entityRow {
	all := map[fsm.EntityID]*entityRow{}
	for id, m := range n.host.Metrics() {
		all[id] = &entityRow{EntityMetrics: *m, leads: true}
	}
	n.front.EachLinked(func(id fsm.EntityID, name string, receivers, senders int) {
		e := all[id]
		if e == nil {
			e = &entityRow{}
			e.Entity, e.Name = id, name
			all[id] = e
		}
		e.receivers, e.senders = e.receivers+receivers, e.senders+senders
	})
	return all
}

// entityCollector makes metrics of the entities that choose leaves.
type entityCollector struct {
	source   entitySource
	choose   func(map[fsm.EntityID]*entityRow) // takes those away that are not told
	now      func() time.Time
	families []entityMetric
	leftOut  *prometheus.Desc
}

func newEntityCollector(source entitySource, choose func(map[fsm.EntityID]*entityRow)) *entityCollector {
	return &entityCollector{source: source, choose: choose, now: time.Now, families: entityMetrics(),
		leftOut: prometheus.NewDesc("busbar_entities_left_out",
			"Entities of this node that have no series here, because there are more than limits.metric-entities.", nil, nil)}
}

// Describe implements prometheus.Collector.
func (c *entityCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, f := range c.families {
		ch <- f.desc
	}
	ch <- c.leftOut
}

// Collect implements prometheus.Collector.
func (c *entityCollector) Collect(ch chan<- prometheus.Metric) {
	all := c.source.entities()
	dropNamesakes(all)
	known := len(all)
	c.choose(all)
	ch <- prometheus.MustNewConstMetric(c.leftOut, prometheus.GaugeValue, float64(known-len(all)))
	now := c.now()
	for _, e := range all {
		for _, f := range c.families {
			f.tell(e, now, func(value float64, labels ...string) {
				ch <- prometheus.MustNewConstMetric(f.desc, f.kind, value, append([]string{e.Name}, labels...)...)
			})
		}
	}
}

// dropNamesakes takes away deleted entities whose name another one has now. Links and messages of a deleted entity can stay for
// a moment. The library of Prometheus refuses a page with two series of one name and the same labels.
func dropNamesakes(all map[fsm.EntityID]*entityRow) {
	newest := make(map[string]fsm.EntityID, len(all))
	for id, e := range all {
		newest[e.Name] = max(id, newest[e.Name])
	}
	maps.DeleteFunc(all, func(id fsm.EntityID, e *entityRow) bool { return id != newest[e.Name] })
}

// choiceLasts is how long the chosen entities stay chosen. A choice made anew at each scrape would begin and end series
// all the time, and Prometheus keeps each of them for hours.
const choiceLasts = 10 * time.Minute

// entityChoice chooses the entities that have series on /metrics. Half of the places are for those that hold most
// messages. The others are for those that most messages came to or left since the last choice.
type entityChoice struct {
	most func() int
	now  func() time.Time

	mu     sync.Mutex
	chosen map[fsm.EntityID]struct{}
	moved  map[fsm.EntityID]uint64 // messages in and out, at the last choice
	until  time.Time
	places int
}

// choose takes away from all what has no place.
func (c *entityChoice) choose(all map[fsm.EntityID]*entityRow) {
	c.mu.Lock()
	defer c.mu.Unlock()
	places := c.most()
	if len(all) <= places {
		c.until = time.Time{}
		return
	}
	if now := c.now(); c.chosen == nil || places != c.places || !now.Before(c.until) {
		c.chosen, c.places, c.until = map[fsm.EntityID]struct{}{}, places, now.Add(choiceLasts)
		c.fillLocked(all, places/2, func(e *entityRow) uint64 { return e.stored() })
		c.fillLocked(all, places, func(e *entityRow) uint64 { return e.moved() - min(e.moved(), c.moved[e.Entity]) })
		c.moved = make(map[fsm.EntityID]uint64, len(all))
		for id, e := range all {
			c.moved[id] = e.moved()
		}
	}
	maps.DeleteFunc(c.chosen, func(id fsm.EntityID, _ struct{}) bool { return all[id] == nil })
	c.fillLocked(all, places, func(e *entityRow) uint64 { return e.stored() }) // of entities that were deleted
	maps.DeleteFunc(all, func(id fsm.EntityID, _ *entityRow) bool {
		_, stays := c.chosen[id]
		return !stays
	})
}

// fillLocked chooses the first by rank until so many places are taken.
func (c *entityChoice) fillLocked(all map[fsm.EntityID]*entityRow, places int, rank func(*entityRow) uint64) {
	if len(c.chosen) >= places {
		return
	}
	rest := slices.SortedFunc(maps.Values(all), func(a, b *entityRow) int {
		return cmp.Or(cmp.Compare(rank(b), rank(a)), cmp.Compare(a.Entity, b.Entity))
	})
	for _, e := range rest {
		if len(c.chosen) >= places {
			return
		}
		c.chosen[e.Entity] = struct{}{}
	}
}

// stored is how many messages the entity holds.
func (e *entityRow) stored() uint64 {
	c := &e.Counts
	return c.Active + c.Scheduled + c.DeadLetter + c.Transfer + c.TransferDeadLetter
}

// moved is how many messages came and were delivered.
func (e *entityRow) moved() uint64 {
	return e.Tally.In + e.Tally.Out[fsm.SideMain] + e.Tally.Out[fsm.SideDead]
}

// withEntityMetrics answers GET /metrics/entities?match=GLOB, for which no token is needed, as for /metrics.
func (n *node) withEntityMetrics(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != metricsEntitiesPath {
			next.ServeHTTP(w, r)
			return
		}
		match := r.URL.Query().Get("match")
		switch {
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			answerJSON(w, http.StatusMethodNotAllowed, map[string]string{"error": "ask by GET"})
			return
		case match == "":
			answerJSON(w, http.StatusBadRequest, map[string]string{
				"error": "say which entities: ?match=orders* , where * stands for any text and ? for one character"})
			return
		}
		registry := prometheus.NewRegistry()
		registry.MustRegister(newEntityCollector(n, func(all map[fsm.EntityID]*entityRow) {
			maps.DeleteFunc(all, func(_ fsm.EntityID, e *entityRow) bool { return !globMatches(match, e.Name) })
		}))
		promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}).ServeHTTP(w, r)
	})
}

// globMatches reports whether name is of the pattern, in which * stands for any text, slashes included, and ? for one
// character. Names of entities do not tell upper case from lower case.
func globMatches(pattern, name string) bool {
	p, s := []rune(strings.ToLower(pattern)), []rune(strings.ToLower(name))
	star, back := -1, 0 // the last star, and where in s it ends as tried now
	i, j := 0, 0
	for j < len(s) {
		switch {
		case i < len(p) && p[i] == '*':
			star, back = i, j
			i++
		case i < len(p) && (p[i] == '?' || p[i] == s[j]):
			i, j = i+1, j+1
		case star >= 0:
			back++
			i, j = star+1, back
		default:
			return false
		}
	}
	for i < len(p) && p[i] == '*' {
		i++
	}
	return i == len(p)
}
