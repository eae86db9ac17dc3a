package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/transport/auth"
)

// A request at the operations port whose end nobody sees does not use up the time of the stop: clients are told and
// leaderships are handed over in what is left.
func TestASlowRequestLeavesTimeForTheRestOfAStop(t *testing.T) {
	n, err := openNode(t.Context(), nodeConfig(t, nil), hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	late := context.Canceled
	n.closers = append([]func(context.Context) error{func(ctx context.Context) error { late = ctx.Err(); return nil }}, n.closers...)
	host := n.doors.ops.Addr().String()
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", host)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "PUT /orders HTTP/1.1\r\nHost: localhost\r\nAuthorization: %s\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n",
		auth.NewToken("http://localhost/", devKeyName, devKey, time.Now().Add(time.Hour)))
	answer := bufio.NewReader(c)
	if line, err := answer.ReadString('\n'); err != nil || !strings.Contains(line, fmt.Sprint(http.StatusContinue)) {
		t.Fatalf("the request is not under way: %q, %v", line, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if err := n.close(ctx); err != nil {
		t.Error(err)
	}
	if late != nil {
		t.Errorf("what is closed last has no time: %v", late)
	}
	if _, err := io.ReadAll(answer); err != nil {
		t.Logf("the request: %v", err) // an end or a reset
	}
}
