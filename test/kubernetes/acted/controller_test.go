package acted

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// pods reads pods from words: an ordinal with its revision, r if it is ready just now, a if it is available, t if it ends.
func pods(now time.Time, words string) (all []replica) {
	for _, word := range strings.Fields(words) {
		r := replica{}
		var state string
		if _, err := fmt.Sscanf(word, "%d@%d%s", &r.ordinal, &r.revision, &state); err != nil {
			panic(word)
		}
		switch {
		case strings.Contains(state, "a"):
			r.readySince = now.Add(-time.Hour)
		case strings.Contains(state, "r"):
			r.readySince = now
		}
		r.terminating = strings.Contains(state, "t")
		all = append(all, r)
	}
	return all
}

// told writes acts as words: +ordinal@revision, -ordinal.
func told(acts []act) string {
	var words []string
	for _, a := range acts {
		if a.create {
			words = append(words, fmt.Sprintf("+%d@%d", a.ordinal, a.revision))
		} else {
			words = append(words, fmt.Sprintf("-%d", a.ordinal))
		}
	}
	return strings.Join(words, " ")
}

func TestController(t *testing.T) {
	parallel := plan{replicas: 3, parallel: true, minReady: 15 * time.Second, current: 1, update: 2}
	ordered, half, three := parallel, parallel, parallel
	ordered.parallel, half.partition, three.update = false, 2, 1
	cases := []struct {
		name string
		plan plan
		pods string
		want string
	}{
		{"in parallel all pods are made at once", three, "", "+0@1 +1@1 +2@1"},
		{"in order the first one is", ordered, "", "+0@2"},
		{"in order the next waits until the first is ready", ordered, "0@2-", ""},
		{"in order the next waits until the first is available", ordered, "0@2r", ""},
		{"in order the next follows", ordered, "0@2a", "+1@2"},
		{"a rollout begins at the top", parallel, "0@1a 1@1a 2@1a", "-2"},
		{"a rollout waits for a pod that ends", parallel, "0@1a 1@1a 2@1at", ""},
		{"a rollout waits until the pod is back", parallel, "0@1a 1@1a", "+2@2"},
		{"a rollout waits until the pod is ready", parallel, "0@1a 1@1a 2@2-", ""},
		{"a rollout waits until the pod is available", parallel, "0@1a 1@1a 2@2r", ""},
		{"a rollout goes down", parallel, "0@1a 1@1a 2@2a", "-1"},
		{"a rollout goes to the bottom", parallel, "0@1a 1@2a 2@2a", "-0"},
		{"a rollout ends", parallel, "0@2a 1@2a 2@2a", ""},
		{"a rollout by partition ends above it", half, "0@1a 1@1a 2@2a", ""},
		{"below the partition a lost pod comes back as it was", half, "1@1a 2@2a", "+0@1"},
		{"a pod of a bad revision that is not ready is replaced", parallel, "0@2a 1@2a 2@1-", "-2"},
		{"in parallel pods that are too many go at once", three, "0@1a 1@1a 2@1a 3@1a 4@1a", "-4 -3"},
		{"in order the highest of them goes", ordered, "0@2a 1@2a 2@2a 3@2a 4@2a", "-4"},
		{"in order the next of them waits for its end", ordered, "0@2a 1@2a 2@2a 3@2a 4@2at", ""},
		{"in order the highest goes although a lower one is not ready", ordered, "0@2a 1@2a 2@2a 3@2- 4@2a", "-4"},
		{"in order one that is not ready waits for a lower one that is not", ordered, "0@2a 1@2a 2@2a 3@2- 4@2-", ""},
		{"in order the only one that is not ready goes", ordered, "0@2a 1@2a 2@2a 3@2a 4@2-", "-4"},
		{"in order none goes while a kept one is not ready", ordered, "0@2a 1@2- 2@2a 3@2a", ""},
	}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := told(c.plan.next(now, pods(now, c.pods))); got != c.want {
				t.Errorf("with %q: got %q, want %q", c.pods, got, c.want)
			}
		})
	}
}

func TestRolloutIsDone(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	p := plan{replicas: 2, partition: 1, minReady: time.Second, current: 1, update: 2}
	for words, want := range map[string]bool{
		"0@1a 1@2a": true, "0@1a 1@1a": false, "0@1a 1@2r": false, "0@1a": false, "0@1a 1@2at": false, "0@1a 1@2a 2@2a": false,
	} {
		if got := p.done(now, pods(now, words)); got != want {
			t.Errorf("%q: done is %t", words, got)
		}
	}
}

func TestBudget(t *testing.T) {
	one, always := intstr.FromInt32(1), policy.AlwaysAllow
	plain := &policy.PodDisruptionBudget{Spec: policy.PodDisruptionBudgetSpec{MaxUnavailable: &one}}
	lenient := &policy.PodDisruptionBudget{Spec: policy.PodDisruptionBudgetSpec{MaxUnavailable: &one, UnhealthyPodEvictionPolicy: &always}}
	cases := []struct {
		name    string
		budget  *policy.PodDisruptionBudget
		healthy int // of three
		ready   bool
		want    bool
	}{
		{"one of three may go", plain, 3, true, true},
		{"a second one may not", plain, 2, true, false},
		{"one that is not ready may go while the others are", plain, 2, false, true},
		{"one that is not ready may not go while another is not", plain, 1, false, false},
		{"it may if the budget says so", lenient, 1, false, true},
	}
	for _, c := range cases {
		if got, err := mayEvict(c.budget, standing{3, c.healthy}, c.ready); err != nil || got != c.want {
			t.Errorf("%s: got %t, %v", c.name, got, err)
		}
	}
	if _, err := mayEvict(&policy.PodDisruptionBudget{}, standing{3, 3}, true); err == nil {
		t.Error("a budget without maxUnavailable is played")
	}
}

func TestVerdict(t *testing.T) {
	cases := []struct {
		name    string
		begins  verdict
		results string // + and -
		want    string // the turns: + and -, . for none
	}{
		{"readiness turns at the first success", verdict{failures: 2, successes: 1}, "--+", "..+"},
		{"readiness is lost at the second failure in a row", verdict{failures: 2, successes: 1, ok: true}, "-+--", "...-"},
		{"liveness begins well and is lost late", verdict{failures: 3, successes: 1, ok: true}, "+---", "...-"},
		{"a startup probe fails when its patience is over", verdict{failures: 3, successes: 1, ok: true}, "---", "..-"},
		{"two successes in a row", verdict{failures: 1, successes: 2}, "+-++", "...+"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			v, got := c.begins, ""
			for _, r := range c.results {
				switch {
				case !v.add(r == '+'):
					got += "."
				default:
					got += string(r)
				}
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestBackoff(t *testing.T) {
	var b backoff
	want := []time.Duration{0, 10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second,
		5 * time.Minute, 5 * time.Minute}
	for i, w := range want {
		if got := b.next(time.Second); got != w {
			t.Errorf("restart %d waits %s, want %s", i+1, got, w)
		}
	}
	if got := b.next(goodLife); got != 0 {
		t.Errorf("after a good life the restart waits %s", got)
	}
}

// A probe asks at once and then once a period, and is cut at its timeout.
func TestProbeKeepsItsTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var asked []time.Duration
		p := &probe{period: 5 * time.Second, timeout: 3 * time.Second, verdict: verdict{failures: 2, successes: 1, ok: true},
			ask: func(ctx context.Context) error {
				asked = append(asked, time.Since(began))
				<-ctx.Done() // as a node that hangs
				return ctx.Err()
			}}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var lost time.Duration
		p.run(ctx, func(ok bool, err error) {
			lost = time.Since(began)
			cancel()
		})
		if len(asked) != 2 || asked[0] != 0 || asked[1] != 5*time.Second || lost != 8*time.Second {
			t.Errorf("asked at %v, lost at %s", asked, lost)
		}
	})
}
