package dial

import (
	"bytes"
	"context"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

const (
	apiVersion    = "2021-05"
	maxAtomBytes  = 16 << 20 // a full page of descriptions is far below
	AtomPageSize  = 100
	AtomEntryType = "application/atom+xml;type=entry;charset=utf-8"
)

// Queue is what the management API says about a queue; empty elements are left out of
// requests, so that the broker's defaults hold. The order is the service's.
type Queue struct {
	XMLName                 xml.Name      `xml:"http://schemas.microsoft.com/netservices/2010/10/servicebus/connect QueueDescription" json:"-"`
	LockDuration            string        `xml:",omitempty" json:"lockDuration,omitempty"`
	MaxSizeInMegabytes      int64         `xml:",omitempty" json:"maxSizeInMegabytes,omitempty"`
	DuplicateDetection      *bool         `xml:"RequiresDuplicateDetection" json:"requiresDuplicateDetection,omitempty"`
	RequiresSession         *bool         `xml:"RequiresSession" json:"requiresSession,omitempty"`
	DefaultTimeToLive       string        `xml:"DefaultMessageTimeToLive,omitempty" json:"defaultMessageTimeToLive,omitempty"`
	DeadLetterOnExpiration  *bool         `xml:"DeadLetteringOnMessageExpiration" json:"deadLetteringOnMessageExpiration,omitempty"`
	DuplicateWindow         string        `xml:"DuplicateDetectionHistoryTimeWindow,omitempty" json:"duplicateDetectionHistoryTimeWindow,omitempty"`
	MaxDeliveryCount        int           `xml:",omitempty" json:"maxDeliveryCount,omitempty"`
	SizeInBytes             *int64        `xml:"SizeInBytes" json:"sizeInBytes,omitempty"`
	MessageCount            *int64        `xml:"MessageCount" json:"messageCount,omitempty"`
	Status                  string        `xml:",omitempty" json:"status,omitempty"`
	ForwardTo               string        `xml:",omitempty" json:"forwardTo,omitempty"`
	UserMetadata            string        `xml:",omitempty" json:"userMetadata,omitempty"`
	CreatedAt               string        `xml:",omitempty" json:"createdAt,omitempty"`
	UpdatedAt               string        `xml:",omitempty" json:"updatedAt,omitempty"`
	CountDetails            *countDetails `xml:"CountDetails" json:"counts,omitempty"`
	AutoDeleteOnIdle        string        `xml:",omitempty" json:"autoDeleteOnIdle,omitempty"`
	EnablePartitioning      *bool         `xml:"EnablePartitioning" json:"enablePartitioning,omitempty"`
	ForwardDeadLettersTo    string        `xml:"ForwardDeadLetteredMessagesTo,omitempty" json:"forwardDeadLetteredMessagesTo,omitempty"`
	MaxMessageSizeKilobytes int64         `xml:"MaxMessageSizeInKilobytes,omitempty" json:"maxMessageSizeInKilobytes,omitempty"`
	// Options are what the original does not have; the element is absent if all are at their defaults.
	Options *QueueOptions `xml:"urn:busbar:entity Options" json:"options,omitempty"`
}

// QueueOptions are the options that queue create can set and queue show tells.
type QueueOptions struct {
	NoDeadLetter *bool `xml:"NoDeadLetter" json:"noDeadLetter,omitempty"`
}

type countDetails struct {
	Active     int64 `xml:"ActiveMessageCount" json:"active"`
	DeadLetter int64 `xml:"DeadLetterMessageCount" json:"deadLetter"`
	Scheduled  int64 `xml:"ScheduledMessageCount" json:"scheduled"`
}

type atomEntry struct {
	Title   string `xml:"title"`
	Content struct {
		Queue *Queue `xml:"http://schemas.microsoft.com/netservices/2010/10/servicebus/connect QueueDescription"`
	} `xml:"content"`
}

type atomFeed struct {
	XMLName xml.Name
	Entries []atomEntry `xml:"entry"`
}

// QueueInfo is one queue with its name, which the description does not hold.
type QueueInfo struct {
	Name string `json:"name"`
	*Queue
	// Dropped counts messages that ended without being completed, by reason; nil if it is not known.
	Dropped map[string]uint64 `json:"dropped,omitempty"`
}

// Management speaks the ATOM API.
type Management struct {
	Target *Target
	HTTP   *http.Client
	Limit  time.Duration
}

// NewManagement speaks to the broker of t; limit bounds each request.
func NewManagement(t *Target, limit time.Duration) *Management {
	transport := &http.Transport{TLSClientConfig: t.tlsConfig(), Proxy: nil}
	return &Management{Target: t, HTTP: &http.Client{Transport: transport}, Limit: limit}
}

// Do sends one request and returns the body of a success.
func (m *Management) Do(ctx context.Context, what, method, path, query string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, m.Limit)
	defer cancel()
	u := m.Target.URL("http") + (&url.URL{Path: "/" + path}).EscapedPath() + "?api-version=" + apiVersion + query
	req, err := http.NewRequestWithContext(ctx, method, u, bytes.NewReader(body))
	if err != nil {
		return nil, exit.With(exit.Usage, err)
	}
	req.Header.Set("Authorization", m.Target.Token(path, time.Now()))
	if body != nil {
		req.Header.Set("Content-Type", AtomEntryType)
		// Its destination may be anywhere else in the namespace.
		everywhere := m.Target.Token("", time.Now())
		req.Header.Set("ServiceBusSupplementaryAuthorization", everywhere)
		req.Header.Set("ServiceBusDlqSupplementaryAuthorization", everywhere)
	}
	res, err := m.HTTP.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAtomBytes))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if res.StatusCode >= http.StatusMultipleChoices {
		return nil, exit.FromHTTP(what, res.StatusCode, errorDetail(text))
	}
	return text, nil
}

// errorDetail finds the sentence in an error document.
func errorDetail(text []byte) string {
	var doc struct {
		Detail string `xml:"Detail"`
	}
	if xml.Unmarshal(text, &doc) == nil && doc.Detail != "" {
		return strings.TrimSpace(doc.Detail)
	}
	const most = 300
	return strings.TrimSpace(string(text[:min(len(text), most)]))
}

// CreateQueue creates a queue and returns it with the defaults that the broker chose.
func (m *Management) CreateQueue(ctx context.Context, name string, d Queue) (QueueInfo, error) {
	inner, err := xml.Marshal(d)
	if err != nil {
		return QueueInfo{}, err
	}
	var doc bytes.Buffer
	doc.WriteString(`<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">`)
	doc.Write(inner)
	doc.WriteString(`</content></entry>`)
	answer, err := m.Do(ctx, "create "+name, http.MethodPut, name, "", doc.Bytes())
	if err != nil {
		return QueueInfo{}, err
	}
	return parseQueue(name, answer)
}

// GetQueue returns a queue, or an error with the code [exit.NotFound].
func (m *Management) GetQueue(ctx context.Context, name string) (QueueInfo, error) {
	answer, err := m.Do(ctx, "show "+name, http.MethodGet, name, "", nil)
	if err != nil {
		return QueueInfo{}, err
	}
	return parseQueue(name, answer)
}

// DeleteQueue deletes a queue with its messages.
func (m *Management) DeleteQueue(ctx context.Context, name string) error {
	_, err := m.Do(ctx, "delete "+name, http.MethodDelete, name, "", nil)
	return err
}

// ListQueues reads page after page until one is not full.
func (m *Management) ListQueues(ctx context.Context) ([]QueueInfo, error) {
	var all []QueueInfo
	for skip := 0; ; skip += AtomPageSize {
		query := "&$skip=" + strconv.Itoa(skip) + "&$top=" + strconv.Itoa(AtomPageSize)
		answer, err := m.Do(ctx, "list queues", http.MethodGet, "$Resources/Queues", query, nil)
		if err != nil {
			return nil, err
		}
		var feed atomFeed
		if err := xml.Unmarshal(answer, &feed); err != nil {
			return nil, fmt.Errorf("list queues: %w", err)
		}
		for _, e := range feed.Entries {
			if e.Content.Queue != nil {
				all = append(all, QueueInfo{Name: e.Title, Queue: e.Content.Queue})
			}
		}
		if len(feed.Entries) < AtomPageSize {
			return all, nil
		}
	}
}

// parseQueue reads an entry. A read of an entity that nobody created is answered by a feed (RUL-6).
func parseQueue(name string, text []byte) (QueueInfo, error) {
	var root struct {
		XMLName xml.Name
		atomEntry
	}
	if err := xml.Unmarshal(text, &root); err != nil {
		return QueueInfo{}, fmt.Errorf("queue %s: %w", name, err)
	}
	if root.XMLName.Local == "feed" || root.Content.Queue == nil {
		return QueueInfo{}, exit.With(exit.NotFound, fmt.Errorf("there is no queue %s", name))
	}
	if root.Title != "" {
		name = root.Title
	}
	return QueueInfo{Name: name, Queue: root.Content.Queue}, nil
}
