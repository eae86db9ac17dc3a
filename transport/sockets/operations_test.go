package sockets

import (
	"testing"
	"testing/synctest"
	"time"
)

// F1: sockets of clients take no place of the operations port, nor its sockets one of theirs.
func TestTheOperationsPortHasPlacesOfItsOwn(t *testing.T) {
	r := New(Limits{Total: 2, PerHost: 2, Strangers: 2, StrangersPerHost: 2, Operations: 2})
	mustAdmit(t, r, from("10.0.0.1"))
	mustAdmit(t, r, from("10.0.0.1"))
	first, _ := r.AdmitOperations(from("10.0.0.1"), 0)
	second, reason := r.AdmitOperations(from("10.0.0.1"), 0)
	if first == nil || second == nil || reason != Admitted {
		t.Fatalf("no room on the operations port beside clients: %d", reason)
	}
	if total, strangers := r.Used(); total != 2 || strangers != 2 || r.UsedOperations() != 2 {
		t.Errorf("%d sockets, %d strangers, %d of operations", total, strangers, r.UsedOperations())
	}
	first.Busy()
	second.Busy()
	if s, reason := r.AdmitOperations(from("10.0.0.2"), 0); s != nil || reason != Full {
		t.Errorf("with requests under way on all: %v, %d, want Full", s, reason)
	}
	if n := r.TurnedAwayOperations(); n != 1 {
		t.Errorf("%d sockets are counted as turned away, want 1", n)
	}
	first.Leave()
	first.Leave()
	second.Leave()
	if r.UsedOperations() != 0 || len(r.operations.perHost) != 0 || r.operationsIdle.Len() != 0 || len(r.seats) != 2 {
		t.Errorf("%v, %d idle, %d seats are left", r.operations, r.operationsIdle.Len(), len(r.seats))
	}
}

// F1: who floods the operations port closes its own sockets, the idle one that is oldest first.
func TestAFloodOfTheOperationsPortClosesItsOwn(t *testing.T) {
	r := New(Limits{Total: 1, PerHost: 1, Strangers: 1, StrangersPerHost: 1, Operations: 3})
	admit := func(c *fakeConn) *Seat {
		t.Helper()
		s, reason := r.AdmitOperations(c, 0)
		if s == nil || reason != Admitted {
			t.Fatalf("no room: %d", reason)
		}
		return s
	}
	probe, a, b, c := from("10.0.0.1"), from("10.0.0.2"), from("10.0.0.2"), from("10.0.0.2")
	served := admit(probe)
	admit(a).Busy() // its request is under way
	admit(b)
	admit(c)
	if !b.closed || a.closed || probe.closed {
		t.Errorf("closed: %t %t %t, want the idle one of the host with most", probe.closed, a.closed, b.closed)
	}
	served.Busy()
	admit(from("10.0.0.3"))
	if !c.closed || probe.closed || a.closed {
		t.Errorf("closed: %t %t %t, want the idle one alone", probe.closed, a.closed, c.closed)
	}
	served.Idle()
	served.Leave()
	if n := r.TurnedAwayOperations(); n != 2 { // b and c
		t.Errorf("%d sockets are counted as turned away, want 2", n)
	}
	if r.UsedOperations() != 2 {
		t.Errorf("%d sockets are open, want 2", r.UsedOperations())
	}
}

// F1: of the idle sockets of one host the oldest gives way, and a socket is as old as its last request.
func TestTheSocketThatIsIdleLongestGivesWay(t *testing.T) {
	r := New(Limits{Total: 1, PerHost: 1, Strangers: 1, StrangersPerHost: 1, Operations: 3})
	a, b, c := from("10.0.0.1"), from("10.0.0.1"), from("10.0.0.1")
	var seats []*Seat
	for _, socket := range []*fakeConn{a, b, c} {
		s, _ := r.AdmitOperations(socket, 0)
		seats = append(seats, s)
	}
	seats[0].Busy()
	seats[0].Idle()
	for i, want := range []*fakeConn{b, c, a} {
		if s, reason := r.AdmitOperations(from("10.0.0.2"), 0); s == nil {
			t.Fatalf("no room: %d", reason)
		} else {
			s.Busy() // it does not give way
		}
		if !want.closed {
			t.Errorf("closed for the socket %d: %t %t %t", i, a.closed, b.closed, c.closed)
		}
	}
}

// F1: when requests are under way on all sockets of the operations port, a new one waits for the first that is idle.
func TestAFullOperationsPortIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const patience = time.Second
		r := New(Limits{Total: 1, PerHost: 1, Strangers: 1, StrangersPerHost: 1, Operations: 2})
		a, b := from("10.0.0.1"), from("10.0.0.1")
		var seats []*Seat
		for _, socket := range []*fakeConn{a, b} {
			s, _ := r.AdmitOperations(socket, patience)
			s.Busy()
			seats = append(seats, s)
		}
		began := time.Now()
		if s, reason := r.AdmitOperations(from("10.0.0.2"), patience); s != nil || reason != Full || time.Since(began) != patience {
			t.Errorf("with requests under way on all: %v, %d after %v, want Full after %v", s, reason, time.Since(began), patience)
		}
		began = time.Now()
		time.AfterFunc(patience/3, seats[1].Idle)
		third, reason := r.AdmitOperations(from("10.0.0.2"), patience)
		if third == nil || reason != Admitted || time.Since(began) != patience/3 || !b.closed || a.closed {
			t.Errorf("when a request ends: %v, %d after %v, closed %t %t", third, reason, time.Since(began), a.closed, b.closed)
		}
		third.Busy()
		began = time.Now()
		time.AfterFunc(patience/2, seats[0].Leave)
		if s, reason := r.AdmitOperations(from("10.0.0.2"), patience); s == nil || reason != Admitted || time.Since(began) != patience/2 {
			t.Errorf("when a socket leaves: %v, %d after %v", s, reason, time.Since(began))
		}
		if r.UsedOperations() != 2 {
			t.Errorf("%d sockets are open, want 2", r.UsedOperations())
		}
	})
}
