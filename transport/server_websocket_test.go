package transport

import (
	"errors"
	"fmt"
	"testing"

	"github.com/coder/websocket"
)

// F1: a WebSocket that asks for no known subprotocol gives its place back when it is turned away. Otherwise a stranger
// would fill the node with sockets that are long closed.
func TestAWebSocketThatIsTurnedAwayGivesItsPlaceBack(t *testing.T) {
	ts := startServer(t, 1)
	for range 3 {
		ws, _, err := websocket.Dial(testContext(t), "http://"+ts.addr+websocketPath, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := ws.Read(testContext(t)); websocket.CloseStatus(err) != websocket.StatusPolicyViolation {
			t.Fatalf("got %v", err)
		}
		_ = ws.CloseNow()
	}
	waitFor(t, func() (int, error) {
		total, strangers := ts.Sockets().Used()
		if total != 0 || strangers != 0 {
			return 0, errors.New(fmt.Sprint(total, " sockets are counted, of them strangers ", strangers))
		}
		return total, nil
	})
}
