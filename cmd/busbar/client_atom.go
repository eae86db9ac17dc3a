package main

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
)

const (
	apiVersion    = "2021-05"
	maxAtomBytes  = 16 << 20 // a full page of descriptions is far below
	atomPageSize  = 100
	atomEntryType = "application/atom+xml;type=entry;charset=utf-8"
)

// queueDescription is what the management API says about a queue; empty elements are left out of
// requests, so that the broker's defaults hold. The order is the service's.
type queueDescription struct {
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
	Options *queueOptions `xml:"urn:busbar:entity Options" json:"options,omitempty"`
}

// queueOptions are the options that queue create can set and queue show tells.
type queueOptions struct {
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
		Queue *queueDescription `xml:"http://schemas.microsoft.com/netservices/2010/10/servicebus/connect QueueDescription"`
	} `xml:"content"`
}

type atomFeed struct {
	XMLName xml.Name
	Entries []atomEntry `xml:"entry"`
}

// queueInfo is one queue with its name, which the description does not hold.
type queueInfo struct {
	Name string `json:"name"`
	*queueDescription
	// Dropped counts messages that ended without being completed, by reason; nil if it is not known.
	Dropped map[string]uint64 `json:"dropped,omitempty"`
}

// management speaks the ATOM API.
type management struct {
	t     *target
	http  *http.Client
	limit time.Duration
}

func newManagement(t *target, limit time.Duration) *management {
	transport := &http.Transport{TLSClientConfig: t.tlsConfig(), Proxy: nil}
	return &management{t: t, http: &http.Client{Transport: transport}, limit: limit}
}

// do sends one request and returns the body of a success.
func (m *management) do(ctx context.Context, what, method, path, query string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, m.limit)
	defer cancel()
	u := m.t.url("http") + (&url.URL{Path: "/" + path}).EscapedPath() + "?api-version=" + apiVersion + query
	req, err := http.NewRequestWithContext(ctx, method, u, bytes.NewReader(body))
	if err != nil {
		return nil, &exitError{exitUsage, err}
	}
	req.Header.Set("Authorization", m.t.token(path, time.Now()))
	if body != nil {
		req.Header.Set("Content-Type", atomEntryType)
		// What it may forward to is somewhere else in the namespace.
		everywhere := m.t.token("", time.Now())
		req.Header.Set("ServiceBusSupplementaryAuthorization", everywhere)
		req.Header.Set("ServiceBusDlqSupplementaryAuthorization", everywhere)
	}
	res, err := m.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAtomBytes))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if res.StatusCode >= http.StatusMultipleChoices {
		return nil, statusError(what, res.StatusCode, errorDetail(text))
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

func (m *management) createQueue(ctx context.Context, name string, d queueDescription) (queueInfo, error) {
	inner, err := xml.Marshal(d)
	if err != nil {
		return queueInfo{}, err
	}
	var doc bytes.Buffer
	doc.WriteString(`<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">`)
	doc.Write(inner)
	doc.WriteString(`</content></entry>`)
	answer, err := m.do(ctx, "create "+name, http.MethodPut, name, "", doc.Bytes())
	if err != nil {
		return queueInfo{}, err
	}
	return parseQueue(name, answer)
}

func (m *management) getQueue(ctx context.Context, name string) (queueInfo, error) {
	answer, err := m.do(ctx, "show "+name, http.MethodGet, name, "", nil)
	if err != nil {
		return queueInfo{}, err
	}
	return parseQueue(name, answer)
}

func (m *management) deleteQueue(ctx context.Context, name string) error {
	_, err := m.do(ctx, "delete "+name, http.MethodDelete, name, "", nil)
	return err
}

// listQueues reads page after page until one is not full.
func (m *management) listQueues(ctx context.Context) ([]queueInfo, error) {
	var all []queueInfo
	for skip := 0; ; skip += atomPageSize {
		query := "&$skip=" + strconv.Itoa(skip) + "&$top=" + strconv.Itoa(atomPageSize)
		answer, err := m.do(ctx, "list queues", http.MethodGet, "$Resources/Queues", query, nil)
		if err != nil {
			return nil, err
		}
		var feed atomFeed
		if err := xml.Unmarshal(answer, &feed); err != nil {
			return nil, fmt.Errorf("list queues: %w", err)
		}
		for _, e := range feed.Entries {
			if e.Content.Queue != nil {
				all = append(all, queueInfo{Name: e.Title, queueDescription: e.Content.Queue})
			}
		}
		if len(feed.Entries) < atomPageSize {
			return all, nil
		}
	}
}

// parseQueue reads an entry. What nobody created is answered by a feed (RUL-6).
func parseQueue(name string, text []byte) (queueInfo, error) {
	var root struct {
		XMLName xml.Name
		atomEntry
	}
	if err := xml.Unmarshal(text, &root); err != nil {
		return queueInfo{}, fmt.Errorf("queue %s: %w", name, err)
	}
	if root.XMLName.Local == "feed" || root.Content.Queue == nil {
		return queueInfo{}, &exitError{exitNotFound, fmt.Errorf("there is no queue %s", name)}
	}
	if root.Title != "" {
		name = root.Title
	}
	return queueInfo{Name: name, queueDescription: root.Content.Queue}, nil
}
