package transport

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
)

// A request over HTTP whose body does not come leaves time for what a node closes behind its clients.
func TestASlowRequestLeavesTimeBehindTheServer(t *testing.T) {
	ts := startServer(t, 1)
	ts.http.Handler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		Known(r)
		_, _ = io.ReadAll(r.Body)
	})
	c, err := net.Dial("tcp", ts.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "PUT /orders HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
	if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || !strings.Contains(line, fmt.Sprint(http.StatusContinue)) {
		t.Fatalf("the request is not under way: %q, %v", line, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 6*time.Second)
	defer cancel()
	if err := ts.Close(ctx); err != nil || ctx.Err() != nil {
		t.Errorf("closed with %v, and no time is left: %v", err, ctx.Err())
	}
}
