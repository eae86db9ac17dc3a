package main

import (
	"fmt"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"
)

// A scenario that waits for a lock or a lifetime is cheap, so several run at once.
const atOnce = 10

// limit bounds one scenario.
const limit = 90 * time.Second

const sdk = "github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

// scenario fails by a panic with a failure or a skip, which the methods of env raise.
type scenario func(*env)

type (
	failure string
	skipped string
)

func scenarios() map[string]scenario {
	all := map[string]scenario{}
	for _, group := range []map[string]scenario{sending(), scheduling(), receiving(), settling(), peeking(),
		sessions(), sessionLocks(), ordering(), administration(), topics(), filters(), forwarding(), absent()} {
		for id, run := range group {
			if all[id] != nil {
				panic("scenario " + id + " twice")
			}
			all[id] = run
		}
	}
	return all
}

// absent are the scenarios that no version of the library has anything for.
func absent() map[string]scenario {
	all := map[string]scenario{}
	for reason, ids := range map[string]string{
		"the library has no processor": "process-complete process-abandon process-manual process-concurrent " +
			"process-renew process-renew-limit process-lost process-stop process-error process-session " +
			"process-session-renew process-session-lost process-sessions process-session-order",
		"the library has no transactions": "transaction-commit transaction-rollback transaction-schedule " +
			"transaction-settle transaction-session transaction-cross-entity",
		"the library has no deletion of messages":                "delete-batch delete-purge",
		"the library changes rules over the management API only": "topic-rules-live",
		"the library fetches only what is asked for":             "receive-prefetch",
		"the library has no sessions without exclusion":          "session-share",
		"the library has no iterator":                            "receive-iterate",
	} {
		for _, id := range strings.Fields(ids) {
			all[id] = func(*env) { panic(skipped(reason)) }
		}
	}
	return all
}

var said sync.Mutex

func say(fields ...any) {
	var texts []string
	for _, f := range fields {
		texts = append(texts, strings.Join(strings.Fields(fmt.Sprint(f)), " "))
	}
	said.Lock()
	defer said.Unlock()
	fmt.Println(strings.Join(texts, "\t"))
}

func main() {
	all := scenarios()
	ids := slices.Sorted(maps.Keys(all))
	if len(os.Args) > 1 && os.Args[1] == "--list" {
		fmt.Println(strings.Join(ids, "\n"))
		return
	}
	only, absent := strings.Fields(os.Getenv("BUSBAR_ONLY")), strings.Fields(os.Getenv("BUSBAR_ABSENT"))
	ids = slices.DeleteFunc(ids, func(id string) bool {
		return slices.Contains(absent, id) || len(only) > 0 && !slices.Contains(only, id)
	})
	say("sdk", sdk[len("github.com/Azure/azure-sdk-for-go/sdk/messaging/"):], version())
	slots := make(chan struct{}, atOnce)
	var running sync.WaitGroup
	for i, id := range ids {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			play(id, i, all[id])
		})
	}
	running.Wait()
	say("end", len(ids))
}

// version is that of the SDK that this program was built with.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, d := range info.Deps {
		if d.Path == sdk {
			return strings.TrimPrefix(d.Version, "v")
		}
	}
	return "unknown"
}

// play runs one scenario and tells how it ended.
func play(id string, index int, run scenario) {
	began := time.Now()
	e, cancel := newEnv(id, index)
	state, text := "pass", ""
	func() {
		defer func() {
			switch p := recover().(type) {
			case nil:
			case skipped:
				state, text = "skip", string(p)
			case failure:
				state, text = "fail", string(p)+where()
			default:
				state, text = "fail", fmt.Sprint(p)+where()
			}
		}()
		run(e)
	}()
	e.close()
	cancel()
	say("scenario", id, state, time.Since(began).Milliseconds(), text)
}

// where tells the lines of the scenario that led to a panic.
func where() string {
	var b strings.Builder
	for line := range strings.Lines(string(debug.Stack())) {
		at, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		_, file, ok := strings.Cut(at, "/conformance/go/")
		if ok && !strings.HasPrefix(file, "main.go") {
			b.WriteString(" " + file)
		}
	}
	return " at" + b.String()
}
