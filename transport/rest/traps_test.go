package rest

import (
	"encoding/xml"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// queueElements are what an answer holds, in the service's order.
var queueElements = strings.Fields(`LockDuration MaxSizeInMegabytes RequiresDuplicateDetection
	RequiresSession DefaultMessageTimeToLive DeadLetteringOnMessageExpiration
	DuplicateDetectionHistoryTimeWindow MaxDeliveryCount EnableBatchedOperations SizeInBytes
	MessageCount IsAnonymousAccessible AuthorizationRules Status CreatedAt UpdatedAt AccessedAt
	SupportOrdering CountDetails AutoDeleteOnIdle EnablePartitioning EntityAvailabilityStatus
	EnableExpress ForwardTo UserMetadata ForwardDeadLetteredMessagesTo MaxMessageSizeInKilobytes`)

// full is a house with one queue that has everything.
func full(t *testing.T) *house {
	t.Helper()
	h := newHouse(t)
	h.create(t, "target", "")
	h.create(t, "Full", "<ForwardTo>target</ForwardTo><UserMetadata>m</UserMetadata>"+
		"<ForwardDeadLetteredMessagesTo>target</ForwardDeadLetteredMessagesTo>"+
		"<AuthorizationRules><AuthorizationRule><CreatedTime>2020-01-02T03:04:05.6789Z</CreatedTime>"+
		"<ModifiedTime>2020-01-02T03:04:05Z</ModifiedTime><KeyName>n</KeyName><Rights><AccessRights>Send"+
		"</AccessRights></Rights></AuthorizationRule></AuthorizationRules>")
	h.counts = fsm.EntityCounts{Active: 5, SizeBytes: 9, AccessedAt: fsm.Wall(now.UnixMilli())}
	return h
}

// Each test below is a way in which an answer makes some client fail (1.12).

func TestTrapJavaScriptAndGoWantEveryElementInOrder(t *testing.T) {
	h := full(t)
	_, text := h.do(t, "GET", "/full", "")
	at := 0
	for _, name := range queueElements {
		next := strings.Index(text[at:], "<"+name)
		if next < 0 {
			t.Fatalf("%s is missing or out of order in %s", name, text)
		}
		at += next
	}
	if strings.Contains(text, "i:nil") {
		t.Error("an absent value is written as a null")
	}
}

func TestTrapGoReadsCountDetailsWithAllCounters(t *testing.T) {
	h := full(t)
	for _, target := range []string{"/full", "/$Resources/Queues?$top=1"} {
		_, text := h.do(t, "GET", target, "")
		for _, name := range []string{
			"Active", "DeadLetter", "Scheduled", "Transfer", "TransferDeadLetter",
		} {
			if property(text, "d2p1:"+name+"MessageCount") == "absent" {
				t.Errorf("%s: no %s", target, name)
			}
		}
		if property(text, "MessageCount") != "5" {
			t.Errorf("%s: MessageCount %s", target, property(text, "MessageCount"))
		}
	}
}

func TestTrapJavaScriptWantsOneAttributeOnCountDetails(t *testing.T) {
	_, text := full(t).do(t, "GET", "/full", "")
	if !strings.Contains(text, `<CountDetails xmlns:d2p1="`+countsSpace+`"><d2p1:`) {
		t.Error(text)
	}
}

func TestTrapGoReadsCountersOf32Bits(t *testing.T) {
	h := full(t)
	h.counts = fsm.EntityCounts{
		Active: 1 << 40, DeadLetter: 1 << 31, SizeBytes: math.MaxUint64, Scheduled: 1<<31 - 1,
	}
	_, text := h.do(t, "GET", "/full", "")
	for _, name := range []string{"d2p1:ActiveMessageCount", "d2p1:DeadLetterMessageCount",
		"d2p1:ScheduledMessageCount", "MessageCount"} {
		if n, err := strconv.ParseInt(property(text, name), 10, 32); err != nil || n != math.MaxInt32 {
			t.Errorf("%s is %s", name, property(text, name))
		}
	}
	if got := property(text, "SizeInBytes"); got != fmt.Sprint(math.MaxInt64) {
		t.Errorf("SizeInBytes is %s", got)
	}
}

func TestTrapTimesAreOfRFC3339(t *testing.T) {
	h := full(t)
	for _, accessed := range []fsm.Wall{0, 1767323045123, 1767323045000} {
		h.counts.AccessedAt = accessed
		_, text := h.do(t, "GET", "/full", "")
		for _, name := range []string{"CreatedAt", "UpdatedAt", "AccessedAt", "published", "updated",
			"CreatedTime", "ModifiedTime"} {
			value := property(text, name)
			if _, err := time.Parse(time.RFC3339, value); err != nil || !strings.HasSuffix(value, "Z") {
				t.Errorf("%s is %s", name, value)
			}
		}
	}
}

func TestTrapGoAndDotNetTakeTheNameFromTheTitle(t *testing.T) {
	h := full(t)
	for _, target := range []string{"/FULL", "/$Resources/Queues?$top=1"} {
		_, text := h.do(t, "GET", target, "")
		if !strings.Contains(text, `<title type="text">Full</title>`) {
			t.Errorf("%s: %s", target, text)
		}
	}
}

func TestTrapJavaScriptTakesTheNameFromTheID(t *testing.T) {
	h := full(t)
	h.create(t, "A/b/C", "")
	for _, target := range []string{"/a%2Fb%2Fc?api-version=2021-05", "/$Resources/queues?%24top=1"} {
		_, text := h.do(t, "GET", target, "")
		_, entry, _ := strings.Cut(text, "<entry")
		id, err := url.Parse(strings.ReplaceAll(property(entry, "id"), "&amp;", "&"))
		if err != nil || !id.IsAbs() || id.Path != "/A/b/C" {
			t.Errorf("%s: id %v, %v", target, id, err)
		}
	}
}

func TestTrapDotNetWantsTheAtomNamespace(t *testing.T) {
	h := full(t)
	for target, root := range map[string]string{
		"/full": "entry", "/missing": "feed", "/$Resources/Queues": "feed", "/$namespaceinfo": "entry",
	} {
		_, text := h.do(t, "GET", target, "")
		if !strings.HasPrefix(text, "<"+root+` xmlns="http://www.w3.org/2005/Atom">`) {
			t.Errorf("%s: %s", target, text)
		}
		var any struct{ XMLName xml.Name }
		if err := xml.Unmarshal([]byte(text), &any); err != nil {
			t.Errorf("%s: %v", target, err)
		}
	}
}

func TestTrapDotNetWantsKeysOf44Characters(t *testing.T) {
	_, text := full(t).do(t, "GET", "/full", "")
	for _, name := range []string{"PrimaryKey", "SecondaryKey"} {
		if key := property(text, name); len(key) != 44 {
			t.Errorf("%s has %d characters", name, len(key))
		}
	}
	if property(text, "PrimaryKey") == property(text, "SecondaryKey") {
		t.Error("both keys are one")
	}
}

func TestTrapGoComparesTheTimesOfRulesWithItsOwn(t *testing.T) {
	_, text := full(t).do(t, "GET", "/full", "")
	if got := property(text, "CreatedTime"); got != "2020-01-02T03:04:05.678Z" {
		t.Errorf("CreatedTime is %s", got)
	}
	if got := property(text, "ModifiedTime"); got != "2020-01-02T03:04:05Z" {
		t.Errorf("ModifiedTime is %s", got)
	}
	h := newHouse(t)
	h.create(t, "q", "<AuthorizationRules><AuthorizationRule><CreatedTime>0001-01-01T00:00:00Z"+
		"</CreatedTime><ModifiedTime>soon</ModifiedTime><KeyName>n</KeyName><Rights><AccessRights>"+
		"Send</AccessRights></Rights></AuthorizationRule></AuthorizationRules>")
	if _, text := h.do(t, "GET", "/q", ""); property(text, "CreatedTime") != "absent" ||
		property(text, "ModifiedTime") != "absent" || property(text, "KeyName") != "n" {
		t.Error(text)
	}
}

func TestTrapGoPanicsWithoutTheContentOfNamespaceInfo(t *testing.T) {
	_, text := full(t).do(t, "GET", "/$NamespaceInfo/?api-version=2024-05", "")
	if !strings.Contains(text, `<content type="application/xml"><NamespaceInfo xmlns="`+connectSpace) {
		t.Error(text)
	}
	for name, want := range map[string]string{
		"Name": "sample", "MessagingSKU": "Premium", "MessagingUnits": "1", "NamespaceType": "Messaging",
		"CreatedTime": "2026-01-02T03:04:05.123Z", "ModifiedTime": "2026-01-02T03:04:05.123Z",
	} {
		if got := property(text, name); got != want {
			t.Errorf("%s is %s", name, got)
		}
	}
	if strings.Contains(text, "<published>") {
		t.Error(text)
	}
}

func TestTrapJavaScriptDecodesNamedEntitiesOnly(t *testing.T) {
	h := full(t)
	h.create(t, "meta", `<UserMetadata>'"&lt;&gt;&amp;]]&gt; ü &#x1F600;</UserMetadata>`)
	_, text := h.do(t, "GET", "/meta", "")
	if got, want := property(text, "UserMetadata"), `'&quot;&lt;&gt;&amp;]]&gt; ü 😀`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestTrapOlderVersionsDoNotKnowTheMessageSize(t *testing.T) {
	h := full(t)
	for version, there := range map[string]bool{
		"2017-04": false, "2013-07": false, "2021-05": true, "2024-05": true, "": true, "x": true,
		"2099-01": true, "2015-08-preview": false,
	} {
		_, text := h.do(t, "GET", "/full?api-version="+version, "")
		if got := property(text, "MaxMessageSizeInKilobytes") != "absent"; got != there {
			t.Errorf("%q: %v", version, got)
		}
	}
}

var links = regexp.MustCompile(`<link rel="([a-z]+)" href="([^"]*)"/>`)

// Python stops unless a page has exactly two links; JavaScript and Java look for the one called
// next; Go and .NET count entries.
func TestTrapPagesHaveTwoLinksAndTheLastHasOne(t *testing.T) {
	h := newHouse(t)
	for i := range 5 {
		h.create(t, fmt.Sprintf("q%d", i), "")
	}
	var names []string
	target := "/$Resources/Queues?%24top=2&%3F=&api-version=2021-05"
	for pages := 1; ; pages++ {
		status, text := h.do(t, "GET", target, "")
		if status != http.StatusOK {
			t.Fatal(text)
		}
		head, _, _ := strings.Cut(text, "<entry")
		found := links.FindAllStringSubmatch(head, -1)
		for part := range strings.SplitSeq(text, `<title type="text">`) {
			if name, _, _ := strings.Cut(part, "<"); strings.HasPrefix(name, "q") {
				names = append(names, name)
			}
		}
		if pages == 3 {
			if len(found) != 1 || found[0][1] != "self" {
				t.Errorf("last page: %v", found)
			}
			break
		}
		if len(found) != 2 || found[0][1] != "self" || found[1][1] != "next" {
			t.Fatalf("page %d: %v", pages, found)
		}
		next, err := url.Parse(strings.ReplaceAll(found[1][2], "&amp;", "&"))
		if err != nil || !next.IsAbs() || next.Query().Get("$skip") != fmt.Sprint(2*pages) ||
			next.Query().Get("$top") != "2" || next.Query().Get("api-version") != "2021-05" {
			t.Fatalf("page %d: next is %v, %v", pages, next, err)
		}
		target = next.RequestURI()
	}
	if got := strings.Join(names, " "); got != "q0 q1 q2 q3 q4" {
		t.Errorf("got %s", got)
	}
}

func TestTrapGoAsksUntilAPageIsEmpty(t *testing.T) {
	h := newHouse(t)
	for i := range 101 {
		h.create(t, fmt.Sprintf("q%03d", i), "")
	}
	for query, want := range map[string]int{
		"": 100, "?$skip=100": 1, "?$skip=101": 0, "?$skip=2147483647": 0, "?$top=0": 100,
		"?$top=7&$skip=98": 3, "?$top=1000": 100, "?%24TOP=3": 3, "?$top=3;$skip=1": 100,
	} {
		status, text := h.do(t, "GET", "/$Resources/Queues"+query, "")
		if got := strings.Count(text, "<entry "); status != http.StatusOK || got != want ||
			!strings.HasPrefix(text, "<feed ") {
			t.Errorf("%s: %d, %d entries", query, status, got)
		}
	}
	for _, query := range []string{"?$skip=-1", "?$top=-1", "?$top=x", "?$skip=2147483648", "?$top="} {
		if status, text := h.do(t, "GET", "/$Resources/Queues"+query, ""); status != 400 {
			t.Errorf("%s: %d %s", query, status, text)
		}
	}
}

func TestTrapErrorsAreReadByAllClients(t *testing.T) {
	h := full(t)
	response := h.response(t, "PUT", "/full", queueBody(""))
	if got := response.Header.Get("Content-Type"); got != "application/xml; charset=utf-8" {
		t.Errorf("content type %s", got)
	}
	_, text := h.do(t, "PUT", "/full", queueBody(""))
	var body struct {
		XMLName xml.Name `xml:"Error"`
		Code    int
		Detail  string
	}
	if err := xml.Unmarshal([]byte(text), &body); err != nil || body.Code != 409 {
		t.Fatalf("%+v, %v", body, err)
	}
	if !regexp.MustCompile(`^SubCode=40900\. .*\. To know more visit \S+ \. ` +
		`TrackingId:[0-9a-f-]{36}_G0, SystemTracker:host\.test:full, ` +
		`Timestamp:2026-01-02T03:04:05$`).MatchString(body.Detail) {
		t.Errorf("detail %s", body.Detail)
	}
}
