package rest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/auth"
)

func (s *shelf) PeekEntity(name string, least uint64) (*fsm.Descriptor, fsm.Reading, error) {
	reading := fsm.Reading{Index: 40, Age: s.stale / 2}
	if reading.Index < least {
		return nil, reading, fmt.Errorf("partition 0: %w", fsm.ErrBehind)
	}
	d, err := s.world.Get(s.t.Context(), name)
	return d, reading, err
}

func (s *shelf) Peek(d *fsm.Descriptor, sub fsm.SubQueue, share int, q fsm.Query, least func(fsm.PartitionID) uint64) (
	fsm.Answer, fsm.Reading, error) {
	reading := fsm.Reading{Partition: d.Partitions[share], Index: s.index, Age: s.stale}
	switch {
	case s.absent:
		return fsm.Answer{}, reading, fmt.Errorf("%w: partition 1 is on [a b]", fsm.ErrNoReplica)
	case reading.Index < least(reading.Partition):
		return fsm.Answer{}, reading, fmt.Errorf("partition 1: %w", fsm.ErrBehind)
	}
	a, err := s.Query(s.t.Context(), fsm.Key{Entity: d.ID, Sub: sub, By: fsm.ByShare, Share: uint16(share)}, q)
	return a, reading, err
}

// S-305: every view of the state can be asked of the replicas here, and says what it read and how old that
// is; a handle is refused until they have applied what it names; what is no such view knows no staleness.
func TestStaleReadsSayWhatTheyRead(t *testing.T) {
	i := newInspector(t)
	i.stale = 2_000
	i.queue("orders", grouped)
	at := i.index
	ask := func(method, view string) (*http.Response, string) {
		r := httptest.NewRequest(method, OperatorPrefix+"orders/"+view, nil)
		r.Header.Set("Authorization", auth.NewToken("http://x/", root, rootKey, now.Add(time.Hour)))
		w := httptest.NewRecorder()
		i.api.ServeHTTP(w, r)
		return w.Result(), w.Body.String()
	}
	whole := fmt.Sprintf("0.40,1.%d", at)
	for _, view := range []string{"description", "locks", "history", "sessions", "messages"} {
		res, text := ask("GET", view+"?stale=true&atLeast=9.7")
		want := fmt.Sprintf(`"stale":{"handle":"%s,9.7","ageMillis":2000,"applied":[{"partition":0,"index":40,`+
			`"ageMillis":1000},{"partition":1,"index":%d,"ageMillis":2000}]}`, whole, at)
		if res.StatusCode != 200 || !strings.Contains(text, want) || res.Header.Get("Busbar-Age") != "2000" ||
			res.Header.Get("Busbar-Applied") != whole+",9.7" {
			t.Errorf("%s: %d %v\n%s\nwant %s", view, res.StatusCode, res.Header, text, want)
		}
		if res, text := ask("GET", view); res.Header.Get("Busbar-Age") != "" || strings.Contains(text, "stale") {
			t.Errorf("%s as of now: %v %s", view, res.Header, text)
		}
	}
	for name, c := range map[string]struct {
		ask    string
		absent bool
		status int
		text   string
	}{
		"a share that is behind":     {"GET locks?stale=true&atLeast=" + fmt.Sprintf("1.%d", at+1), false, 503, "behind"},
		"one share of a description": {"GET description?stale=true&atLeast=" + fmt.Sprintf("1.%d", at+1), false, 503, "behind"},
		"a catalog that is behind":   {"GET locks?stale=true&atLeast=0.41", false, 503, "behind"},
		"the newest of two":          {"GET locks?stale=true&atLeast=0.41,0.1", false, 503, "behind"},
		"no replica":                 {"GET locks?stale=true", true, 421, "is on [a b]: ask one of those"},
		"a handle that is none":      {"GET locks?stale=true&atLeast=x", false, 400, "atLeast"},
		"half a handle":              {"GET locks?stale=true&atLeast=1", false, 400, "atLeast"},
		"too long a handle":          {"GET locks?stale=true&atLeast=1.1" + strings.Repeat(",1.1", maxHandle), false, 400, "256"},
		"a handle as of now":         {"GET locks?atLeast=1.1", false, 400, "stale=true"},
		"no truth value":             {"GET locks?stale=maybe", false, 400, "true or false"},
		"transactions":               {"GET transactions?stale=true", false, 400, "stale"},
		"an act":                     {"POST purge?stale=true", false, 400, "stale"},
		"an entity that is not here": {"GET ../none/locks?stale=true", false, 404, "no entity"},
	} {
		i.absent = c.absent
		method, view, _ := strings.Cut(c.ask, " ")
		var res *http.Response
		var text string
		if rest, other := strings.CutPrefix(view, "../"); other {
			r := httptest.NewRequest(method, OperatorPrefix+rest, nil)
			r.Header.Set("Authorization", auth.NewToken("http://x/", root, rootKey, now.Add(time.Hour)))
			w := httptest.NewRecorder()
			i.api.ServeHTTP(w, r)
			res, text = w.Result(), w.Body.String()
		} else {
			res, text = ask(method, view)
		}
		if res.StatusCode != c.status || !strings.Contains(text, c.text) ||
			(c.status == 503) != (res.Header.Get("Retry-After") != "") || res.Header.Get("Busbar-Applied") != "" {
			t.Errorf("%s: %d %v %s", name, res.StatusCode, res.Header, text)
		}
	}
}
