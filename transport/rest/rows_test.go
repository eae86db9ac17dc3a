package rest

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/busbar-mq/busbar/fsm"
)

// Every row of these tables of docs/spec/management-api.md is in testdata/rows.txt: with requests and
// what must be answered, with the name of the test that holds it ("see"), or with the reason why this
// broker does something else ("not"). The number is how many cells name a row.
var tables = map[string]int{
	"1.1": 1, "1.2": 1, "1.3": 1, "1.4": 1, "1.5": 1, "1.6": 1, "1.7": 1, "1.8": 1, "1.9": 1, "1.10": 2,
	"Filter and action XML": 1, "Request tolerance": 1, "1.11": 2, "1.12": 2, "1.14": 1,
	"2.1": 1, "2.2": 1, "2.3": 1, "2.4": 1, "3.2": 1, "3.3": 1, "3.4": 1,
	"4.1": 1, "4.2": 2, "4.3": 1, "4.4": 1, "4.5": 1, "5.2": 1, "6": 1,
}

var (
	heading = regexp.MustCompile(`^#+ (?:(\d+(?:\.\d+)?)\.? )?(.*)`)
	between = regexp.MustCompile(` *\| *`)
)

// rowsOf reads the names of the rows of the first table below each heading, "1.9 DELETE missing queue".
func rowsOf(t *testing.T, file string) []string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	section, line := "", 0 // of the table; the first two are its head
	for text := range strings.Lines(string(b)) {
		text = strings.TrimSpace(strings.NewReplacer("`", "", "*", "", `\|`, "/").Replace(text))
		if m := heading.FindStringSubmatch(text); m != nil {
			if section = m[1]; section == "" {
				section = m[2]
			}
			line = 0
			continue
		}
		cells, listed := tables[section]
		switch {
		case !listed:
		case strings.HasPrefix(text, "|"):
			if line++; line > 2 {
				parts := between.Split(strings.Trim(text, "| "), -1)
				names = append(names, section+" "+strings.Join(parts[:cells], " "))
			}
		case line > 0:
			section = "" // the table is over; a second one below the heading is not asked for
		}
	}
	return names
}

// readRows splits rows.txt at its headings.
func readRows(t *testing.T) (names []string, scripts map[string]string) {
	t.Helper()
	b, err := os.ReadFile("testdata/rows.txt")
	if err != nil {
		t.Fatal(err)
	}
	scripts = map[string]string{}
	for part := range strings.SplitSeq("\n"+string(b), "\n## ") {
		name, script, _ := strings.Cut(part, "\n")
		if name == "" || scripts[name] != "" {
			if name != "" {
				t.Errorf("%s is there twice", name)
			}
			continue
		}
		names, scripts[name] = append(names, name), script
	}
	return names, scripts
}

func TestEveryRowOfTheSpecification(t *testing.T) {
	names, scripts := readRows(t)
	stated := map[string]bool{}
	for _, name := range rowsOf(t, "../../docs/spec/management-api.md") {
		stated[name] = true
		if scripts[name] == "" {
			t.Errorf("testdata/rows.txt says nothing of row %q", name)
		}
	}
	for _, name := range names {
		if !stated[name] {
			t.Errorf("testdata/rows.txt: the specification has no row %q", name)
		}
		t.Run(name, func(t *testing.T) {
			for _, wrong := range newRowRun(t).follow(t, scripts[name]) {
				t.Error(wrong)
			}
		})
	}
}

// rowRun is a script under way, in a house with a queue q, a topic t, its subscription s and rule r, and a
// queue orders with policies of its own.
type rowRun struct {
	*house
	headers []string // of the next request
	answer  *http.Response
	text    string // its body
	wrong   []string
}

func (r *rowRun) fail(format string, args ...any) {
	r.wrong = append(r.wrong, fmt.Sprintf(format, args...))
}

func newRowRun(t *testing.T) *rowRun {
	t.Helper()
	h := newHouse(t)
	h.create(t, "q", "")
	h.create(t, "orders", "")
	h.put(t, "/t", "TopicDescription", "")
	h.put(t, "/t/Subscriptions/s", "SubscriptionDescription", "")
	if status, text := h.do(t, "PUT", "/t/Subscriptions/s/Rules/r", entryBody("RuleDescription", "")); status != 201 {
		t.Fatalf("rule: %d %s", status, text)
	}
	return &rowRun{house: h}
}

// refusals are what the rest of the broker can be told to answer from a line on: "broker stale".
var refusals = map[string]error{
	"well": nil, "full": &fsm.RefusedError{Refusal: fsm.QuotaExceeded, Detail: "10000 entities exist"},
	"unwilling": &fsm.RefusedError{Refusal: fsm.InvalidOperation, Detail: "why"},
	"stale":     &fsm.RefusedError{Refusal: fsm.Stale}, "busy": fsm.ErrBusy, "broken": os.ErrInvalid,
}

// follow does a script line by line and returns what did not come true:
//
//	> Name: value                  a header of the next request; "token P A" stands for one of policy P
//	PUT /q Queue <LockDuration>…   a request; Queue and the like are put into an entry, raw is sent as it is
//	201 text                       the status that was answered, and a text in the body
//	+ text    - text               another one, and one that is not in it
//	= Name: value                  a header of the answer
//	broker stale                   from here on
//	see transport TestX            the row is held by that test
//	not REASON                     the row is not held
func (r *rowRun) follow(t *testing.T, script string) (wrong []string) {
	t.Helper()
	did := false
	for line := range strings.Lines(script) {
		line = strings.TrimSpace(line)
		word, rest, _ := strings.Cut(line, " ")
		rest = strings.ReplaceAll(rest, `\r\n`, "&#xD;\n")
		code, err := strconv.Atoi(word)
		switch {
		case line == "" || word == "#":
			continue
		case word == ">":
			r.header(rest)
		case word == "broker":
			r.failure = refusals[rest]
		case word == "see":
			r.see(t, rest)
		case word == "not":
			if len(rest) < 10 {
				r.fail("%q gives no reason", line)
			}
		case err == nil:
			if r.answer.StatusCode != code || !strings.Contains(r.text, rest) {
				r.fail("want %s\ngot %d %s", line, r.answer.StatusCode, r.text)
			}
		case (word == "+") != strings.Contains(r.text, rest) && (word == "+" || word == "-"):
			r.fail("%s: got %s", line, r.text)
		case word == "+" || word == "-":
		case word == "=":
			name, value, _ := strings.Cut(rest, ": ")
			if got := r.answer.Header.Get(name); got != value {
				r.fail("%s is %q, want %q", name, got, value)
			}
		default:
			r.request(t, word, rest)
		}
		did = true
	}
	if !did {
		r.fail("nothing is tried")
	}
	return r.wrong
}

func (r *rowRun) header(line string) {
	name, value, _ := strings.Cut(line, ": ")
	if f := strings.Fields(value); len(f) > 2 && f[len(f)-3] == "token" {
		key := "k"
		if f[len(f)-2] == root {
			key = rootKey
		}
		value = strings.Join(append(f[:len(f)-3], token(f[len(f)-2], key, f[len(f)-1])), " ")
	}
	if value == "none" {
		value = ""
	}
	r.headers = append(r.headers, name, value)
}

func (r *rowRun) request(t *testing.T, method, line string) {
	t.Helper()
	target, body, _ := strings.Cut(line, " ")
	if kind, elements, _ := strings.Cut(body, " "); kind == "raw" {
		body = elements
	} else if body != "" {
		body = entryBody(kind+"Description", elements)
	}
	r.answer = r.response(t, method, target, body, r.headers...)
	var text bytes.Buffer
	if _, err := text.ReadFrom(r.answer.Body); err != nil {
		t.Fatal(err)
	}
	r.text, r.headers = text.String(), nil
}

// see checks that the test exists: "transport TestHTTPLocks".
func (r *rowRun) see(t *testing.T, line string) {
	t.Helper()
	room, test, _ := strings.Cut(line, " ")
	files, err := filepath.Glob(filepath.Join("../..", room, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), "\nfunc "+test+"(") {
			return
		}
	}
	r.fail("there is no %s in %s", test, room)
}

// A script that does not come true fails: a run that only ever agrees proves nothing.
func TestRowsCanFail(t *testing.T) {
	for _, script := range []string{
		"GET /q\n404", "GET /q\n200 <TopicDescription", "GET /q\n200\n+ nothing of it", "GET /q\n200\n- <entry",
		"GET /q\n= ETag: 1", "see transport TestNothing", "not so", "# nothing",
	} {
		if wrong := newRowRun(t).follow(t, script); len(wrong) == 0 {
			t.Errorf("%q passes", script)
		}
	}
}
