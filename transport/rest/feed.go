package rest

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/google/uuid"
)

// listing is one page of a list: how many entries it has, what writes each, and whether there are
// more behind them.
type listing struct {
	title string // "Queues", "Topics", "Subscriptions" or "Rules"
	path  string // of the list
	count int
	write func(p *page, i int)
	more  bool
}

// feed writes one page. Python wants the self link first, the next link second and no other.
func (a *API) feed(q *request, l listing) *answer {
	p := new(page)
	self := "https://" + q.host + q.http.URL.RequestURI()
	p.raw(`<feed xmlns="` + atomSpace + `"><title type="text">` + l.title + "</title>")
	p.tag("id", self)
	p.tag("updated", a.deps.Now().UTC().Format(atomTime))
	p.link("self", self)
	if l.more {
		next := fmt.Sprintf("https://%s/%s?$skip=%d&$top=%d", q.host, l.path,
			q.query.skip+l.count, q.query.top)
		if version := strings.TrimPrefix(q.query.suffix(), "?"); version != "" {
			next += "&" + version
		}
		p.link("next", next)
	}
	for i := range l.count {
		p.raw(`<entry xml:base="`)
		escape(&p.Buffer, self)
		p.raw(`">`)
		l.write(p, i)
		p.raw("</entry>")
	}
	p.raw("</feed>")
	return &answer{status: http.StatusOK, contentType: feedType, body: p.Bytes()}
}

// emptyFeed is the answer for what is not there (RUL-6); Go knows it by its title.
func (a *API) emptyFeed() *answer {
	p := new(page)
	p.raw(`<feed xmlns="` + atomSpace + `"><title type="text">Publicly Listed Services</title>` +
		`<subtitle type="text">This is the list of publicly-listed services currently available.` +
		`</subtitle>`)
	p.tag("id", "uuid:"+uuid.NewString()+";id=1")
	p.tag("updated", a.deps.Now().UTC().Format(atomTime))
	p.raw("<generator>Service Bus 1.1</generator></feed>")
	return &answer{status: http.StatusOK, contentType: feedType, body: p.Bytes()}
}

func (a *API) namespaceEntry(q *request) []byte {
	p := new(page)
	id := "https://" + q.host + "/$namespaceinfo" + q.query.suffix()
	p.raw(`<entry xmlns="` + atomSpace + `">`)
	p.tag("id", id)
	p.raw(`<title type="text">`)
	escape(&p.Buffer, a.cfg.Namespace)
	p.raw("</title>")
	created := a.cfg.CreatedAt.UTC()
	p.tag("updated", created.Format(atomTime))
	p.raw("<author>")
	p.tag("name", a.cfg.Namespace)
	p.raw("</author>")
	p.link("self", id)
	p.raw(`<content type="application/xml"><NamespaceInfo xmlns="` + connectSpace +
		`" xmlns:i="` + instanceSpace + `">`)
	p.tag("CreatedTime", created.Format(exactTime))
	p.tag("MessagingSKU", a.cfg.Tier.sku())
	if a.cfg.Tier != Standard {
		p.tag("MessagingUnits", "1")
	}
	p.tag("ModifiedTime", created.Format(exactTime))
	p.tag("Name", a.cfg.Namespace)
	p.tag("NamespaceType", "Messaging")
	p.raw("</NamespaceInfo></content></entry>")
	return p.Bytes()
}
