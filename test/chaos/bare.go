package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	goamqp "github.com/Azure/go-amqp"

	"github.com/busbar-mq/busbar/test/check"
	"github.com/busbar-mq/busbar/test/cluster"
)

// bare is a connection of the library below the official SDK: the SDK for Go cannot accept a session
// without exclusion.
type bare struct {
	conn    *goamqp.Conn
	session *goamqp.Session
	links   map[string]*requests // to $management, by entity
	serial  int
}

// repliesAtOnce is the credit of a link that takes answers: a client has one request under way.
const repliesAtOnce = 10

func newBare(ctx context.Context, s *socket) (*bare, error) {
	conn, err := goamqp.NewConn(ctx, s, &goamqp.ConnOptions{
		SASLType: goamqp.SASLTypePlain(cluster.KeyName, cluster.Key), HostName: "localhost",
	})
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	session, err := conn.NewSession(ctx, nil)
	if err != nil {
		return nil, errors.Join(err, conn.Close(), s.Close())
	}
	return &bare{conn: conn, session: session, links: map[string]*requests{}}, nil
}

// requestLinks returns a pair of links to an entity's $management.
func requestLinks(ctx context.Context, session *goamqp.Session, address string) (*requests, error) {
	at := address + "/$management"
	rx, err := session.NewReceiver(ctx, at, &goamqp.ReceiverOptions{TargetAddress: "answers", Credit: repliesAtOnce,
		RequestedSenderSettleMode: goamqp.SenderSettleModeSettled.Ptr(),
		SettlementMode:            goamqp.ReceiverSettleModeFirst.Ptr()})
	if err != nil {
		return nil, err
	}
	tx, err := session.NewSender(ctx, at, nil)
	if err != nil {
		return nil, err
	}
	return &requests{tx, rx}, nil
}

// answerError is a refusal of a request.
type answerError struct {
	code            int32
	condition, text string
}

// Error implements error.
func (e *answerError) Error() string { return fmt.Sprintf("%d %s: %s", e.code, e.condition, e.text) }

// ask sends one request and waits for its answer.
func (b *bare) ask(ctx context.Context, entity, operation string, body map[string]any) (map[string]any, error) {
	r := b.links[entity]
	if r == nil {
		var err error
		if r, err = requestLinks(ctx, b.session, entity); err != nil {
			return nil, err
		}
		b.links[entity] = r
	}
	b.serial++
	id, replyTo := fmt.Sprintf("r%d", b.serial), "answers"
	err := r.tx.Send(ctx, &goamqp.Message{
		Properties:            &goamqp.MessageProperties{MessageID: id, ReplyTo: &replyTo},
		ApplicationProperties: map[string]any{"operation": "com.microsoft:" + operation},
		Value:                 body,
	}, nil)
	if err != nil {
		return nil, fmt.Errorf("request: %v", err) // whatever its type: nothing is known of the operation
	}
	for {
		a, err := r.rx.Receive(ctx, nil)
		if err != nil {
			return nil, fmt.Errorf("answer: %v", err)
		}
		if a.Properties == nil || a.Properties.CorrelationID != id {
			continue // the answer to a request that ran out of time
		}
		code, _ := a.ApplicationProperties["statusCode"].(int32)
		if code == 200 {
			v, _ := a.Value.(map[string]any)
			return v, nil
		}
		condition, _ := a.ApplicationProperties["errorCondition"].(string)
		text, _ := a.ApplicationProperties["statusDescription"].(string)
		return nil, &answerError{code, condition, text}
	}
}

// surely are the conditions that say that nothing was done.
var surely = []string{
	sessionLockLost, "com.microsoft:message-lock-lost", "com.microsoft:session-cannot-be-locked",
	"com.microsoft:message-not-found", "com.microsoft:argument-error", "amqp:not-allowed", "amqp:not-found",
	"amqp:invalid-field",
}

const sessionLockLost = "com.microsoft:session-lock-lost"

// judgeBare is judge for a bare connection. The error is not nil if the link that the operation used, or
// the connection, is of no use any more.
func (c *client) judgeBare(o *check.Op, err error, fill func(*check.Op)) error {
	if err == nil {
		c.w.rec.End(o, check.OK, fill)
		return nil
	}
	condition := ""
	var answered *answerError
	var refused *goamqp.Error
	switch {
	case detachedFor(err) != "": // the answer may have been on its way
	case errors.As(err, &answered):
		condition = answered.condition
	case errors.As(err, &refused):
		condition = string(refused.Condition)
	}
	if slices.Contains(surely, condition) {
		c.w.rec.End(o, check.Failed, func(o *check.Op) { o.Error, o.Condition = err.Error(), condition })
		return nil
	}
	c.w.counts.unknown.Add(1)
	c.w.rec.End(o, check.Unknown, func(o *check.Op) { o.Error, o.Condition, o.Return = err.Error(), condition, 0 })
	if detachedFor(err) != "" {
		return err
	}
	return fmt.Errorf("%w: %w", errGiveUp, err)
}

// detachedFor returns the condition with which the broker ended a link, "" for another error.
func detachedFor(err error) string {
	var ended *goamqp.LinkError
	if errors.As(err, &ended) && ended.RemoteErr != nil {
		return string(ended.RemoteErr.Condition)
	}
	return ""
}

// delivered reads what a bare receiver was given.
func delivered(m *goamqp.Message, token string) check.Message {
	out := peeked(m)
	out.Token = token
	if t, ok := m.Annotations["x-opt-locked-until"].(time.Time); ok {
		out.LockedUntil = t.UnixMilli()
	}
	return out
}
