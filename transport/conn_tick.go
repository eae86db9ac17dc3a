package transport

import (
	"time"

	"github.com/busbar-mq/busbar/transport/amqp"
)

// tick does what is due.
func (c *conn) tick(now time.Time) {
	switch c.phase {
	case phaseClosing:
		if now.Sub(c.leftAt) >= c.cfg.CloseTimeout {
			c.phase = phaseOver
			return
		}
	case phaseOpen:
		if !c.authed && now.Sub(c.openedAt) >= c.cfg.AuthTimeout {
			c.fault(nil, nil, connFault(siteToken, amqp.ConditionConnectionForced,
				"no token was put in %v", c.cfg.AuthTimeout))
			return
		}
		c.expireClaims(now)
		c.pruneUnsettled()
	}
	if now.Sub(c.lastWrite) >= c.beat && !c.writing {
		c.out = amqp.AppendEmptyFrame(c.out)
	}
	c.rearm()
}

// pruneUnsettled lets links go on that stopped because their client does not settle: locks have run
// out meanwhile.
func (c *conn) pruneUnsettled() {
	for _, l := range c.links {
		if e, ok := l.end.(*egress); ok && e.unsettled >= c.cfg.MaxUnsettled {
			e.fetch()
		}
	}
}

// rearm sets the timer to the next thing that is due.
func (c *conn) rearm() {
	if c.wake != nil {
		c.wake.Reset(c.nextWake())
	}
}

func (c *conn) nextWake() time.Duration {
	now := time.Now()
	next := c.lastWrite.Add(c.beat)
	if c.writing || c.saidClose { // no sign of life is wanted
		next = now.Add(c.beat)
	}
	earlier := func(t time.Time) {
		if t.Before(next) {
			next = t
		}
	}
	switch c.phase {
	case phaseClosing, phaseLeaving:
		earlier(c.leftAt.Add(c.cfg.CloseTimeout))
		if half := c.leftAt.Add(c.cfg.CloseTimeout / 2); half.After(now) {
			earlier(half) // see awaitsVerdicts
		}
	case phaseOpen:
		if !c.authed {
			earlier(c.openedAt.Add(c.cfg.AuthTimeout))
		}
		for _, claim := range c.claims {
			if !claim.Until.IsZero() {
				earlier(claim.Until)
			}
		}
	}
	return max(next.Sub(now), time.Millisecond)
}
