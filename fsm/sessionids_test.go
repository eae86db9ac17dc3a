package fsm

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// idOf is one of many ids: short and long ones, and some that differ only far behind or by a zero.
func idOf(rng *rand.Rand) string {
	n := rng.IntN(700)
	switch n % 5 {
	case 0:
		return fmt.Sprintf("session-%d", n)
	case 1:
		return strings.Repeat("long", 30) + fmt.Sprint(n)
	case 2:
		return strings.Repeat("\U0001F600", 126) + fmt.Sprint(n%10) // 505 bytes
	case 3:
		return "z" + strings.Repeat("\x00", n%20)
	}
	return fmt.Sprint(n)
}

// TestSessionIDsAreAnOrderedSet compares the pages with a map that is sorted, over fillings and
// emptyings, and every generation with what it was when the next one began. S-83
func TestSessionIDsAreAnOrderedSet(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 0))
		x, gen := newSessionIDs(), uint64(1)
		want := map[string]uint32{}
		type image struct {
			of   sessionIDs
			want map[string]uint32
		}
		var images []image
		for i := range 6000 {
			id := idOf(rng)
			no, ok := x.get(id)
			if w, has := want[id]; ok != has || no != w {
				t.Fatalf("seed %d, step %d: %q is %d, %v, want %d, %v", seed, i, id, no, ok, w, has)
			}
			filling := (i/1000)%2 == 0
			switch {
			case !ok && (filling || rng.IntN(10) == 0):
				want[id] = uint32(i + 1)
				x.add(id, uint32(i+1), gen)
			case ok && (!filling || rng.IntN(10) == 0):
				delete(want, id)
				x.remove(id, gen)
			case !ok:
				x.remove(id, gen)
			}
			if rng.IntN(400) == 0 {
				sameIDs(t, x, want)
				images = append(images, image{x, maps.Clone(want)})
				x, gen = x.copy(), gen+1
			}
		}
		for id := range want {
			x.remove(id, gen)
		}
		if x.len() != 0 || x.pages.Len() != 0 {
			t.Fatalf("seed %d: %d ids on %d pages when all are gone", seed, x.len(), x.pages.Len())
		}
		for _, im := range images {
			sameIDs(t, im.of, im.want)
		}
	}
}

// sameIDs compares all ids, and those from some place on.
func sameIDs(t *testing.T, x sessionIDs, want map[string]uint32) {
	t.Helper()
	ids := make([]string, 0, len(want))
	for id := range want {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	if x.len() != len(want) {
		t.Fatalf("%d ids, want %d", x.len(), len(want))
	}
	for _, from := range []int{0, len(ids) / 3, len(ids) - 1} {
		first := ""
		if from > 0 {
			first = ids[from]
		}
		got := []string{}
		x.from(first, func(id []byte, no uint32) bool {
			if no != want[string(id)] {
				t.Fatalf("%q has %d, want %d", id, no, want[string(id)])
			}
			got = append(got, string(id))
			return true
		})
		if !slices.Equal(got, ids[max(from, 0):]) {
			t.Fatalf("from %q: %d ids, want %d", first, len(got), len(ids)-from)
		}
	}
	used := 0
	x.pages.Scan(func(r idPageRef) bool { used += int(r.page.used); return true })
	if n := x.pages.Len(); n > 8 && used < n*idPageRoom/6 {
		t.Errorf("%d bytes on %d pages", used, n)
	}
}

// TestLongSessionIDsFitTheirPages fills a page with ids, and adds one to the half that a long id in the middle leaves
// too full for it. S-26, S-83
func TestLongSessionIDsFitTheirPages(t *testing.T) {
	d := newDriver(t)
	d.ok(0, Main, queue(7, withSessions))
	var want []string
	for place, length := range []int{1: 500, 2: 505, 3: 512, 4: 495, 0: 512} {
		text := strings.Repeat(string(rune('\U0001F600'+place)), length/4) + strings.Repeat("x", length%4)
		want = append(want, text)
	}
	for _, place := range []int{1, 2, 3, 4, 0} {
		d.ok(7, Main, &Enqueue{Messages: []Message{{SessionID: want[place], HasSession: true, Body: []byte("a")}}})
	}
	if got := d.s.Query(QueryRequest{Entity: 7, Query: &ListSessions{Max: 10}}).Sessions; !slices.Equal(got, want) {
		t.Errorf("%d sessions, want %d", len(got), len(want))
	}
	if err := d.s.CheckInvariants(); err != nil {
		t.Error(err)
	}
}
