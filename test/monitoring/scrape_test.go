package monitoring

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/util/teststorage"
)

// collector keeps what nodes tell, at times of its own: a minute from one scrape to the next.
type collector struct {
	nodes []*node
	data  *teststorage.TestStorage
	now   time.Duration
}

// scrape asks every node once, and has the same answer for each of some minutes.
func (c *collector) scrape(t *testing.T, minutes int) {
	t.Helper()
	pages := make([][]byte, len(c.nodes)) // nil for a node that does not answer
	for i, n := range c.nodes {
		if resp, err := http.Get("http://" + n.ops + "/metrics"); err == nil {
			pages[i], err = io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Fatalf("scrape of %s: %s, %v", n.name, resp.Status, err)
			}
		}
	}
	for range minutes {
		for i, n := range c.nodes {
			c.store(t, n.name, pages[i])
		}
		c.now += time.Minute
	}
}

// store keeps one answer of a node, with the labels that Prometheus adds.
func (c *collector) store(t *testing.T, instance string, page []byte) {
	t.Helper()
	app, at := c.data.Appender(t.Context()), start.Add(c.now).UnixMilli()
	put := func(ls labels.Labels, v float64) {
		b := labels.NewBuilder(ls)
		b.Set("job", "busbar").Set("instance", instance)
		if _, err := app.Append(0, b.Labels(), at, v); err != nil {
			t.Fatal(err)
		}
	}
	up := 0.0
	if page != nil {
		up = 1
	}
	put(labels.FromStrings("__name__", "up"), up)
	p, err := textparse.New(page, "text/plain", nil, textparse.ParserOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("scrape of %s: %v", instance, err)
		}
		if entry == textparse.EntrySeries {
			var ls labels.Labels
			p.Labels(&ls)
			_, _, v := p.Series()
			if ls.Get("__name__") == "busbar_disk_free_bytes" {
				v = 1 << 40 // another program may fill the disk of this machine, and the alert would be right
			}
			put(ls, v)
		}
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
}

// firing returns the summaries of all alerts that fire now.
func (c *collector) firing(t *testing.T) (found []string) {
	t.Helper()
	e := newEvaluator(t, c.data)
	for _, r := range alertRules(t) {
		for _, a := range e.firing(t, &r, c.now-time.Minute) {
			found = append(found, a.Annotations.Get("summary"))
		}
	}
	slices.Sort(found)
	return found
}

func (c *collector) wantFiring(t *testing.T, when string, want ...string) {
	t.Helper()
	if got := c.firing(t); !slices.Equal(got, want) {
		t.Errorf("%s: fires\n\t%s\nwant\n\t%s", when, strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// The alerts and the panels of the dashboards speak of series that a real cluster has. A cluster that is well raises no
// alert. Dead letters, a queue without receivers and a node that is lost raise theirs, and nothing else does.
func TestAClusterIsMonitored(t *testing.T) {
	c := &collector{nodes: startCluster(t), data: teststorage.New(t)}
	n := c.nodes[0]
	n.must(t, "queue", "create", "orders")
	c.scrape(t, 10)
	c.wantFiring(t, "a new cluster")

	for range 40 {
		n.must(t, "send", "orders", "x")
	}
	n.must(t, "receive", "orders", "--max", "12", "--deadletter")
	n.must(t, "receive", "orders", "--max", "5")
	n.must(t, "queue", "purge", "orders", "--dlq", "--yes", "--ops", "http://"+n.ops)
	if code := n.busbar(t, "receive", "absent"); code == 0 {
		t.Error("a queue that does not exist gave something")
	}
	c.scrape(t, 5)
	c.wantFiring(t, "after dead letters",
		"orders dead-lettered more than ten messages in a quarter of an hour (receiver).")
	c.panels(t)
	c.series(t)

	c.scrape(t, 30)
	c.wantFiring(t, "half an hour later", "orders has messages and no receivers.")

	c.nodes[2].kill()
	for _, n := range c.nodes[:2] { // until the others lead all
		for n.get(t.Context(), "/readyz") != nil {
			time.Sleep(50 * time.Millisecond)
		}
	}
	n.must(t, "send", "orders", "x")
	c.scrape(t, 4)
	c.wantFiring(t, "without a node", "The node n3 does not answer the collector.", "orders has messages and no receivers.")
}

// panels asks what each panel of the dashboards shows.
func (c *collector) panels(t *testing.T) {
	t.Helper()
	e, asked := newEvaluator(t, c.data), 0
	fill := strings.NewReplacer("$__rate_interval", "10m", "$entity", ".*")
	for _, name := range []string{"cluster", "entities"} {
		var board struct {
			UID    string `json:"uid"`
			Panels []struct {
				Title   string `json:"title"`
				Targets []struct {
					Expr string `json:"expr"`
				} `json:"targets"`
			} `json:"panels"`
		}
		if err := json.Unmarshal(read(t, "scripts/monitoring/dashboards/"+name+".json"), &board); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, p := range board.Panels {
			for _, q := range p.Targets {
				asked++
				if shown := e.value(t, fill.Replace(q.Expr), c.now-time.Minute); len(shown) == 0 {
					t.Errorf("%s, %s: %s shows nothing", board.UID, p.Title, q.Expr)
				}
			}
		}
	}
	if asked < 40 {
		t.Errorf("%d queries in both dashboards", asked)
	}
}

// series asks for all series that the rules name, and for the labels by which they choose.
func (c *collector) series(t *testing.T) {
	t.Helper()
	e := newEvaluator(t, c.data)
	for _, r := range alertRules(t) {
		expr, err := language().ParseExpr(r.Expr)
		if err != nil {
			t.Fatal(err)
		}
		for _, matchers := range parser.ExtractSelectors(expr) {
			name := matchers[slices.IndexFunc(matchers, func(m *labels.Matcher) bool { return m.Name == "__name__" })].Value
			for _, m := range matchers {
				if len(e.value(t, fmt.Sprintf(`{__name__=%q,%s!=""}`, name, m.Name), c.now-time.Minute)) == 0 {
					t.Errorf("%s: a cluster has no %s with a label %s", r.Alert, name, m.Name)
				}
			}
		}
	}
}
