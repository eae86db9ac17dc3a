package main

import (
	"net/http"
	"testing"

	"github.com/busbar-mq/busbar/fsm"
)

// T-131; S-54, S-254: a session is taken from its holder over HTTP, by a status of its queue over the
// management API and by the operators' release. The holder's get-session-state, complete and renew are refused.
// The next holder gets the message, whose delivery counts after a release and not after a status.
func TestT131ASessionIsTakenOverHTTP(t *testing.T) {
	l := openLive(t, nodeConfig(t, nil))
	l.put(t, "/q", "QueueDescription", "<RequiresSession>true</RequiresSession>")
	d, err := l.node.directory.Get(t.Context(), "q")
	if err != nil {
		t.Fatal(err)
	}
	key := fsm.Key{Entity: d.ID, By: fsm.ByText, Text: "S"}
	propose := func(want fsm.Refusal, c fsm.Command) fsm.Outcome {
		t.Helper()
		o, err := l.node.router.Propose(t.Context(), fsm.RequestID{}, key, c)
		if err != nil || o.Refusal != want {
			t.Fatalf("%T: %v %s %v, want %v", c, o.Refusal, o.Detail, err, want)
		}
		return o
	}
	hold := func(deliveries uint32) (fsm.SessionProof, fsm.LockToken) {
		t.Helper()
		proof := propose(fsm.None, &fsm.AcceptSession{ID: "S"}).Session
		got := propose(fsm.None, &fsm.Lock{Session: proof, Max: 1, MaxBytes: 1 << 20}).Locked
		if len(got) != 1 || got[0].Attempts != deliveries {
			t.Fatalf("locked %+v, want one message with %d deliveries that failed", got, deliveries)
		}
		return proof, got[0].Token
	}
	refused := func(want fsm.Refusal, proof fsm.SessionProof, token fsm.LockToken) {
		t.Helper()
		a, err := l.node.router.Query(t.Context(), key, &fsm.GetSessionState{Session: proof})
		if err != nil || a.Refusal != want {
			t.Errorf("get-session-state: %v %v, want %v", a.Refusal, err, want)
		}
		propose(want, &fsm.RenewSession{Session: proof})
		propose(want, &fsm.Settle{Session: proof, Items: []fsm.SettleItem{{Token: token, Verdict: fsm.Complete}}})
	}

	propose(fsm.None, &fsm.Enqueue{Messages: []fsm.Message{{HasSession: true, SessionID: "S", Body: []byte("a")}}})
	proof, token := hold(0)
	l.put(t, "/q", "QueueDescription", "<RequiresSession>true</RequiresSession><Status>ReceiveDisabled</Status>", "If-Match", "*")
	refused(fsm.EntityDisabled, proof, token)
	l.put(t, "/q", "QueueDescription", "<RequiresSession>true</RequiresSession><Status>Active</Status>", "If-Match", "*")
	refused(fsm.SessionLockLost, proof, token)

	proof, token = hold(0)
	res, text := l.requestTo(t, l.opsHost(), http.MethodPost, "/api/entities/q/release-session?session=S", "", "")
	if res.StatusCode != http.StatusOK || text != `{"released":1}` {
		t.Errorf("release: %d %q", res.StatusCode, text)
	}
	refused(fsm.SessionLockLost, proof, token)
	hold(1)
}
