package transport

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	goamqp "github.com/Azure/go-amqp"
	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// toldCases are the ways in which a broker says no, each with its row of S-2.
func toldCases() map[string]error {
	cases := map[string]error{}
	for why := fsm.None + 1; why <= fsm.TransactionTooLarge; why++ {
		code := why.String()
		switch why {
		case fsm.SessionRequired, fsm.SessionNotSupported:
			code = "InvalidOperation"
		case fsm.Stale, fsm.NotLeader:
			code = "ServiceBusy"
		}
		if why == fsm.NodeExpired {
			continue // the node takes a new incarnation, and no client hears of it (RUL-19)
		}
		cases[fmt.Sprintf("%s as %d", code, why)] = &fsm.RefusedError{Refusal: why, Detail: "some detail"}
	}
	cases["ServiceTimeout as unknown"] = fsm.ErrUnknown
	cases["ServiceTimeout as unavailable"] = fsm.ErrUnavailable
	cases["ServiceCommunicationProblem as closed"] = fsm.ErrClosed
	cases["GeneralError as anything"] = errors.New("disk on fire")
	return cases
}

// neverAgain are the codes of S-2 that a client must not try again as they are.
const neverAgain = " MessageLockLost SessionLockLost MessageNotFound MessagingEntityNotFound " +
	"MessagingEntityAlreadyExists MessageSizeExceeded InvalidOperation InvalidArgument Unauthorized " +
	"TransactionAborted TransactionInDoubt TransactionSizeExceeded "

// S-1, S-2: whatever the broker says, the client of a delivery and the client of a request read the code,
// the entity, the time, whether to try again and when, and an id that the log has, too.
func TestEveryRefusalCarriesWhatItMust(t *testing.T) {
	log := &keptLog{}
	ts := startLogged(t, hclog.New(&hclog.LoggerOptions{Level: hclog.Info, Output: log}), 1)
	ts.broker.queue("orders")
	session := newSession(t, dial(t, ts))
	for name, cause := range toldCases() {
		code, _, _ := strings.Cut(name, " as ")
		ts.broker.mu.Lock()
		ts.broker.fail = func(cmd fsm.Command) error {
			if _, ok := cmd.(*fsm.Enqueue); ok {
				return cause
			}
			return nil
		}
		ts.broker.mu.Unlock()
		tx := newSender(t, session, "orders")
		var e *goamqp.Error
		if err := tx.Send(testContext(t), goamqp.NewMessage([]byte("x")), nil); !errors.As(err, &e) {
			var detached *goamqp.LinkError
			if !errors.As(err, &detached) || detached.RemoteErr == nil {
				t.Fatalf("%s: %v", name, err)
			}
			e = detached.RemoteErr
		}
		if e.Info["code"] != code {
			t.Errorf("%s: the code is %v", name, e.Info["code"])
		}
		judge(t, name, log, code, e.Description, e.Info)
		_ = tx.Close(testContext(t))

		encoded, err := goamqp.NewMessage([]byte("x")).MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		answer := ask(t, session, "orders/$management", "told", requestTo("schedule-message", map[string]any{
			"messages": []any{map[string]any{"message-id": "1", "message": encoded}}}))
		text, _ := answer.ApplicationProperties["statusDescription"].(string)
		judge(t, name+", of a request", log, code, text, answer.ApplicationProperties)
	}
}

// judge looks at a refusal as a client has it.
func judge(t *testing.T, name string, log *keptLog, code, text string, said map[string]any) {
	t.Helper()
	found := trackedText.FindStringSubmatch(text)
	if found == nil || found[2] != "orders" || said["entityPath"] != "orders" {
		t.Errorf("%s: no id and entity in %q, %v", name, text, said)
		return
	}
	if id := said["trackingId"]; id != nil && id != found[1] {
		t.Errorf("%s: two ids, %v and %s", name, id, found[1])
	}
	if !log.has("code=" + code + " entity=orders tracking_id=" + found[1]) {
		t.Errorf("%s: the log has nothing of %q", name, text)
	}
	if again := !strings.Contains(neverAgain, " "+code+" "); said["retriable"] != again {
		t.Errorf("%s: retriable is %v", name, said["retriable"])
	}
	if after, there := said["retryAfter"]; there != (code == "ServiceBusy") || there && after != uint32(10_000) {
		t.Errorf("%s: to be tried again after %v ms", name, after)
	}
	if at, ok := said["timestamp"].(time.Time); !ok || time.Since(at) > time.Hour {
		t.Errorf("%s: the time is %v", name, said["timestamp"])
	}
}

// S-1: over HTTP, too.
func TestEveryRefusalOverHTTPIsFound(t *testing.T) {
	log := &keptLog{}
	ts := startLogged(t, hclog.New(&hclog.LoggerOptions{Level: hclog.Info, Output: log}), 1)
	ts.broker.queue("orders")
	for name, cause := range toldCases() {
		ts.broker.mu.Lock()
		ts.broker.fail = func(fsm.Command) error { return cause }
		ts.broker.mu.Unlock()
		res := ts.curl(t, "POST", "/orders/messages", "x")
		text := textBody(t, res)
		found := trackedText.FindStringSubmatch(text)
		if found == nil || found[2] != "orders" || !log.has("entity=orders tracking_id="+found[1]) {
			t.Errorf("%s: %q has no entity, or no id that the log has", name, text)
		}
		if later := res.Header.Get("Retry-After") != ""; later != (res.StatusCode == 503) {
			t.Errorf("%s: status %d, Retry-After %q", name, res.StatusCode, res.Header.Get("Retry-After"))
		}
	}
}

// S-243, S-2: who cannot be told what became of a commit must not do it again, but ask.
func TestAnUnknownCommitIsInDoubt(t *testing.T) {
	s := &Server{log: hclog.NewNullLogger()}
	for err, want := range map[error]string{fsm.ErrUnknown: "TransactionInDoubt", fsm.ErrBusy: "ServiceBusy"} {
		if got := codeOfError(s.commitError(err, "orders")).String(); got != want {
			t.Errorf("%v: %s, want %s", err, got, want)
		}
	}
}

// AMQP 1.0 §2.4.1: frames may be of 512 bytes, and a refusal must fit.
func TestSmallFramesHaveNoInfo(t *testing.T) {
	ts := startServer(t, 1)
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	c := newConn(ts.Server, near, protocolAMQP)
	defer c.cancel()
	why := amqpError(amqp.ConditionServerBusy, "no")
	c.peerFrame = minFrameBytes
	if told := c.tell(why, "orders"); len(told.Info) > 8 || !strings.Contains(told.Description, "TrackingId:") {
		t.Errorf("%d bytes of info, %q", len(told.Info), told.Description)
	}
	c.peerFrame = infoFrameBytes
	told := c.tell(why, "orders")
	if _, ok := told.Info.Get("trackingId"); !ok {
		t.Errorf("no id in %x", told.Info)
	}
	if again := c.tell(told, "other"); again != told {
		t.Errorf("told twice: %v", again)
	}
}
