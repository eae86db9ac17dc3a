package rest

import (
	"strings"
	"testing"
)

// B7, RUL-25: a namespace of the Standard tier shows the sizes that the Standard service shows, and its
// queues and topics take messages of 256 kB.
func TestTheTierStandard(t *testing.T) {
	h := newHouse(t, func(c *Config) { c.OfTier(Standard) })
	h.put(t, "/q", "QueueDescription", "")
	h.put(t, "/t", "TopicDescription", "")
	h.put(t, "/t/Subscriptions/s", "SubscriptionDescription", "")
	for _, name := range []string{"q", "t", "t/Subscriptions/s"} {
		if d, err := h.Get(t.Context(), name); err != nil || d.MaxMessageBytes != 256<<10 {
			t.Errorf("%s: messages of %d bytes, %v", name, d.MaxMessageBytes, err)
		}
	}
	for _, row := range []struct {
		method, path, element, elements string
		status                          int
		text                            string
	}{
		{"GET", "/q?api-version=2021-05", "", "", 200, "<MaxMessageSizeInKilobytes>256</MaxMessageSizeInKilobytes>"},
		{"GET", "/t?api-version=2021-05", "", "", 200, "<MaxMessageSizeInKilobytes>256</MaxMessageSizeInKilobytes>"},
		{"GET", "/$namespaceinfo", "", "", 200, "<MessagingSKU>Standard</MessagingSKU><ModifiedTime>"},
		{"PUT", "/a", "QueueDescription", "<MaxMessageSizeInKilobytes>1024</MaxMessageSizeInKilobytes>", 400, "SubCode=40000. Bad Request."},
		{"PUT", "/a", "TopicDescription", "<MaxMessageSizeInKilobytes>512</MaxMessageSizeInKilobytes>", 400, "SubCode=40000. Bad Request."},
		// A client that sends back what it has read.
		{"PUT", "/a", "QueueDescription", "<MaxMessageSizeInKilobytes>256</MaxMessageSizeInKilobytes>", 201, ""},
		{"PUT", "/b", "QueueDescription", "<MaxSizeInMegabytes>5120</MaxSizeInMegabytes>", 201, ""},
		{"PUT", "/c", "QueueDescription", "<MaxSizeInMegabytes>6144</MaxSizeInMegabytes>", 400, "from 1 to 5120"},
		{"PUT", "/d", "QueueDescription", "<MaxSizeInMegabytes>4096</MaxSizeInMegabytes><EnablePartitioning>true</EnablePartitioning>", 201, "<MaxSizeInMegabytes>65536</MaxSizeInMegabytes>"},
	} {
		body := ""
		if row.element != "" {
			body = entryBody(row.element, row.elements)
		}
		status, text := h.do(t, row.method, row.path, body)
		if status != row.status || !strings.Contains(text, row.text) {
			t.Errorf("%s %s %s: %d %s, want %d %s", row.method, row.path, row.elements, status, text, row.status, row.text)
		}
	}
}

// B7, RUL-25: without a word of it a namespace is of the Premium tier.
func TestTheTierPremium(t *testing.T) {
	h := newHouse(t)
	h.put(t, "/q", "QueueDescription", "")
	h.put(t, "/large", "QueueDescription", "<MaxMessageSizeInKilobytes>16384</MaxMessageSizeInKilobytes>")
	for name, want := range map[string]uint32{"q": 1 << 20, "large": 16 << 20} {
		if d, err := h.Get(t.Context(), name); err != nil || d.MaxMessageBytes != want {
			t.Errorf("%s: messages of %d bytes, %v, want %d", name, d.MaxMessageBytes, err, want)
		}
	}
	cfg := Defaults()
	cfg.Tier = "basic"
	if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), `tier is "basic", want premium or standard`) {
		t.Errorf("an unknown tier: %v", err)
	}
}
