package rest

import (
	"errors"
	"mime"
	"net/http"
	"strings"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
	"github.com/busbar-mq/busbar/fsm/rule"
	"github.com/busbar-mq/busbar/transport/audit"
	"github.com/busbar-mq/busbar/transport/auth"
)

// getEntity answers with the description, or with an empty feed when there is none (RUL-6). It does so to a caller
// without rights as well, as the service does.
func (a *API) getEntity(q *request) (*answer, error) {
	if !validName(q.where.name) {
		return a.emptyFeed(), nil
	}
	d, err := a.deps.Entities.Get(q.ctx, q.where.name)
	if err != nil {
		if asProblem(err).status == http.StatusNotFound {
			return a.emptyFeed(), nil
		}
		return nil, err
	}
	if !q.claim.Allows(q.where.path, auth.Manage) {
		return nil, &problem{status: http.StatusUnauthorized, text: claimsForRead}
	}
	e, err := a.look(q, d)
	if err != nil {
		return nil, err
	}
	return a.entry(q, http.StatusOK, e), nil
}

// look asks for what is not in an entity's description. Counters that are not complete are left
// out.
func (a *API) look(q *request, d *fsm.Descriptor) (*shown, error) {
	e := &shown{d: d}
	counts, complete, err := a.deps.Cluster.Counts(q.ctx, d)
	switch {
	case complete && err == nil:
		e.counts = &counts
	case q.query.enrich:
		return nil, countless(err)
	}
	return e, a.lookBelow(q, e)
}

// lookBelow counts the subscriptions of a topic and their filters; a true or false filter is a SQL
// filter to the service.
func (a *API) lookBelow(q *request, e *shown) error {
	if e.d.Kind != fsm.Topic {
		return nil
	}
	all, err := a.deps.Topics.Subscriptions(q.ctx, e.d, 0, -1)
	if err != nil {
		return err
	}
	e.subscriptions = uint64(len(all))
	for _, s := range all {
		for i := range s.Rules {
			if s.Rules[i].Source.Kind == rule.CorrelationFilter {
				e.correlationFilters++
			} else {
				e.sqlFilters++
			}
		}
	}
	return nil
}

// countless is the answer to a client that wants counters while a partition is silent. Clients that
// do not say what they want get a description without counters: those that read them report the
// lack, the others go on working.
func countless(err error) error {
	p := busy("not all partitions of the entity answered")
	p.cause = err
	return p
}

func (a *API) putEntity(q *request) (*answer, error) {
	// To create is the namespace's right: a policy of an entity can exist with it only.
	if !q.claim.Allows(q.where.path, auth.Manage) || (!q.updates && !q.claim.OnNamespace(auth.Manage)) {
		return nil, &problem{status: http.StatusUnauthorized, text: claimsForWrite}
	}
	if err := checkName(q.host, q.where.name); err != nil {
		return nil, err
	}
	element, p, err := readBody(q.http)
	if err != nil {
		return nil, err
	}
	for _, kind := range [...]fsm.EntityKind{fsm.Queue, fsm.Topic} {
		if element != descriptionElement(kind) {
			continue
		}
		if q.updates {
			return again(func() (*answer, error) { return a.updateEntity(q, kind, p) })
		}
		return a.createEntity(q, kind, p)
	}
	return nil, badRequest("The content of the Atom entry is not the description of a queue or topic.")
}

// readBody reads the description in a request; element is its local name.
func readBody(r *http.Request) (element string, p properties, err error) {
	if err := checkContentType(r); err != nil {
		return "", p, err
	}
	element, p, err = parseDescription(r.Body)
	return element, p, unreadable(err)
}

// readContent reads what the Atom entry in a request holds.
func readContent(r *http.Request) (*element, error) {
	e, err := parseContent(r.Body)
	return e, unreadable(err)
}

// unreadable is the answer to a body that cannot be read.
func unreadable(err error) error {
	if err == nil {
		return nil
	}
	if got := asProblem(err); got.status < http.StatusInternalServerError {
		return got
	}
	return badRequest("Bad Request. The request body cannot be read: %s.", clip(err.Error()))
}

func (a *API) createEntity(q *request, kind fsm.EntityKind, p properties) (*answer, error) {
	d, err := a.describe(kind, q.where.name, p, nil)
	if err != nil {
		return nil, err
	}
	if err := a.checkForwards(q, &d); err != nil {
		return nil, err
	}
	created, err := a.deps.Entities.Create(q.ctx, d)
	if err != nil {
		return nil, err
	}
	a.log.Info("entity created", "kind", kindNames[kind], "name", created.Name,
		"policy", q.claim.Policy)
	audit.Of(q.ctx).Changed(nil, created)
	return a.entry(q, http.StatusCreated, &shown{d: created, counts: &fsm.EntityCounts{}, fresh: true}), nil
}

func (a *API) updateEntity(q *request, kind fsm.EntityKind, p properties) (*answer, error) {
	missing := &problem{status: http.StatusNotFound, subCode: 40400, text: noOperation}
	old, err := a.deps.Entities.Get(q.ctx, q.where.name)
	if err != nil {
		if asProblem(err).status == http.StatusNotFound {
			// A fault of the description is said first, as by the service.
			if _, wrong := a.describe(kind, q.where.name, p, nil); wrong != nil {
				return nil, wrong
			}
			return nil, missing
		}
		return nil, err
	}
	if old.Kind != kind {
		return nil, badRequest("'%s' is a %s, not a %s.", clip(old.Name), kindNames[old.Kind],
			kindNames[kind])
	}
	d, err := a.describe(kind, old.Name, p, old)
	if err != nil {
		return nil, err
	}
	if err := a.checkForwards(q, &d); err != nil {
		return nil, err
	}
	updated, err := a.deps.Entities.Update(q.ctx, d)
	if err != nil {
		if asProblem(err).status == http.StatusNotFound { // deleted meanwhile
			return nil, missing
		}
		return nil, err
	}
	a.log.Info("entity updated", "kind", kindNames[kind], "name", updated.Name,
		"policy", q.claim.Policy)
	audit.Of(q.ctx).Changed(old, updated)
	e := &shown{d: updated, sent: &p}
	if err := a.lookBelow(q, e); err != nil {
		return nil, err
	}
	return a.entry(q, http.StatusOK, e), nil
}

// updateTries bounds how often one update is made from what the entity is by then.
const updateTries = 5

// again repeats an update that met another one. An absent property may stay as it is, so an update from an earlier
// description would take the other one back (S-262).
func again[T any](update func() (T, error)) (made T, err error) {
	for range updateTries {
		var refused *fsm.RefusedError
		if made, err = update(); !errors.As(err, &refused) || refused.Refusal != fsm.Stale {
			break
		}
	}
	return made, err
}

func (a *API) deleteEntity(q *request) (*answer, error) {
	if !q.claim.Allows(q.where.path, auth.Manage) {
		return nil, &problem{status: http.StatusUnauthorized, text: claimsToDelete}
	}
	if err := checkName(q.host, q.where.name); err != nil {
		return nil, err
	}
	before := a.before(q, q.where.name)
	if err := a.deps.Entities.Delete(q.ctx, q.where.name); err != nil {
		if p := asProblem(err); p.status == http.StatusNotFound {
			return nil, &problem{status: http.StatusNotFound, text: noService}
		}
		return nil, err
	}
	a.log.Info("entity deleted", "name", q.where.name, "policy", q.claim.Policy)
	audit.Of(q.ctx).Changed(before, nil)
	return &answer{status: http.StatusOK}, nil
}

// checkContentType takes what the SDKs send and what older tools do.
func checkContentType(r *http.Request) error {
	value, err := one(r, "Content-Type")
	if err != nil {
		return err
	}
	unsupported := &problem{status: http.StatusUnsupportedMediaType,
		text: "The body must be application/atom+xml in UTF-8."}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" &&
		!strings.EqualFold(encoding, "identity") {
		return unsupported
	}
	if value == "" {
		return nil
	}
	kind, parameters, err := mime.ParseMediaType(value)
	if err != nil {
		return unsupported
	}
	switch kind {
	case "application/atom+xml", "application/xml", "text/xml":
	default:
		return unsupported
	}
	if charset := parameters["charset"]; charset != "" && !strings.EqualFold(charset, "utf-8") {
		return unsupported
	}
	return nil
}

// checkForwards looks at both forward targets. They exist, if only by this request, and the caller proves Send on
// them, by the supplementary token or, without one, by its own (3.3). An entity may forward to itself (RUL-24).
func (a *API) checkForwards(q *request, d *fsm.Descriptor) error {
	for _, f := range [...]struct{ name, value, header string }{
		{"ForwardTo", d.ForwardTo, "ServiceBusSupplementaryAuthorization"},
		{
			"ForwardDeadLetteredMessagesTo", d.ForwardDeadLettersTo,
			"ServiceBusDlqSupplementaryAuthorization",
		},
	} {
		if f.value == "" {
			continue
		}
		target := catalog.Destination(f.value) // what forwards reads the text in no other way
		if !validName(target) {
			return badProperty(f.name, f.value, "The value is no name of an entity.")
		}
		claim := q.claim
		token, err := one(q.http, f.header)
		if err != nil {
			return err
		}
		if token != "" {
			if claim, err = a.deps.Policies.Verify(token, a.deps.Now()); err != nil {
				return unauthorized(err)
			}
		}
		if !claim.Allows(target, auth.Send) {
			return &problem{status: http.StatusUnauthorized,
				text: "Authorization failed for specified action: Send on the entity of " + f.name + "."}
		}
		if d.Kind == fsm.Queue && strings.EqualFold(target, d.Name) {
			continue
		}
		found, err := a.deps.Entities.Get(q.ctx, target)
		if err != nil && asProblem(err).status != http.StatusNotFound {
			return err
		}
		if err != nil || (found.Kind != fsm.Queue && found.Kind != fsm.Topic) {
			return &problem{status: http.StatusBadRequest, subCode: 40400, text: noForward}
		}
	}
	return nil
}
