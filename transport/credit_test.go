package transport

import "testing"

// AMQP 1.0 §2.6.7, RFC 1982
func TestRemaining(t *testing.T) {
	for name, c := range map[string]struct{ count, amount, ours, want uint32 }{
		"nothing used":                 {0, 10, 0, 10},
		"some used":                    {0, 10, 4, 6},
		"all used":                     {0, 10, 10, 0},
		"more used than granted now":   {0, 3, 10, 0},
		"across the wrap":              {1<<32 - 2, 10, 3, 5},
		"a peer that counts ahead":     {100, 10, 50, 10},
		"the largest number":           {0, 1<<32 - 1, 0, maxWindow},
		"the largest number, all used": {5, 1<<32 - 1, 5 + maxWindow, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := remaining(c.count, c.amount, c.ours); got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
		})
	}
}

// S-135: what a sender may have under way is the credit of the limits, and fits into the bytes.
func TestSenderCredit(t *testing.T) {
	for name, c := range map[string]struct {
		limit   uint32
		bytes   int
		message uint64
		want    uint32
	}{
		"small messages": {1000, 8 << 20, 1 << 10, 1000},
		"large messages": {1000, 8 << 20, 1 << 20, 8},
		"huge messages":  {1000, 8 << 20, 16 << 20, 1},
		"no size at all": {1000, 8 << 20, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			if got := senderCredit(c.limit, c.bytes, c.message); got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
		})
	}
}

func TestSerialOrder(t *testing.T) {
	if !serialLess(1<<32-1, 0) || serialLess(0, 1<<32-1) || serialLess(7, 7) {
		t.Error("serial numbers do not wrap")
	}
}

// A channel's unsettled deliveries are found by id, in ranges, across the wrap.
func TestSentList(t *testing.T) {
	var s sentList
	first := uint32(1<<32 - 100)
	for i := range uint32(1000) {
		s.add(sentDelivery{id: first + i})
	}
	count := func(from, to uint32) (n int) {
		s.take(from, to, func(*sentDelivery) bool { n++; return true })
		return n
	}
	if n := count(first+50, first+149); n != 100 {
		t.Errorf("took %d over the wrap", n)
	}
	if n := count(first, first+199); n != 100 {
		t.Errorf("took %d of a range that is half gone", n)
	}
	if n := count(first+200, first+800); n != 601 || len(s.items) > 400 {
		t.Errorf("took %d, %d slots are kept", n, len(s.items))
	}
	if n := count(first, first+2000); n != 199 || len(s.items) != 0 {
		t.Errorf("took %d at last, %d slots are kept", n, len(s.items))
	}
}

func TestDefaultsAreValidAndEveryProblemIsReported(t *testing.T) {
	c := Defaults()
	c.Incarnation = 1
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	c = Config{}
	err := c.Validate()
	if err == nil || len(err.(interface{ Unwrap() []error }).Unwrap()) < 20 {
		t.Fatalf("got %v", err)
	}
	for range 20 {
		if again := c.Validate(); again.Error() != err.Error() {
			t.Fatalf("the problems come in another order:\n%v\n\n%v", err, again)
		}
	}
}
