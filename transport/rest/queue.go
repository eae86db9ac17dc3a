package rest

import (
	"mime"
	"net/http"
	"strings"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/auth"
)

// getEntity answers with the description, or with an empty feed when there is none (RUL-6), to a
// caller without rights as well, as the service does.
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
	if d.Kind != fsm.Queue {
		return nil, notImplemented(topicsAndBelow)
	}
	counts, complete, err := a.deps.Cluster.Counts(q.ctx, d)
	if !complete || err != nil {
		if q.query.enrich {
			return nil, countless(err)
		}
		return a.entry(q, http.StatusOK, d, nil), nil
	}
	return a.entry(q, http.StatusOK, d, &counts), nil
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
	if !q.claim.Allows(q.where.path, auth.Manage) || (!q.updates && q.claim.Scope != "") {
		return nil, &problem{status: http.StatusUnauthorized, text: claimsForWrite}
	}
	if err := checkName(q.host, q.where.name); err != nil {
		return nil, err
	}
	if err := checkContentType(q.http); err != nil {
		return nil, err
	}
	kind, p, err := parseDescription(q.http.Body)
	if err != nil {
		if got := asProblem(err); got.status < http.StatusInternalServerError {
			return nil, got
		}
		return nil, badRequest("Bad Request. The request body cannot be read: %s.", clip(err.Error()))
	}
	switch kind {
	case "QueueDescription":
	case "TopicDescription":
		return nil, notImplemented(topicsAndBelow)
	default:
		return nil, badRequest("The content of the Atom entry is not a known description.")
	}
	if q.updates {
		return a.updateQueue(q, p)
	}
	return a.createQueue(q, p)
}

func (a *API) createQueue(q *request, p properties) (*answer, error) {
	d, err := a.describeQueue(q.where.name, p, nil)
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
	a.log.Info("queue created", "name", created.Name, "policy", q.claim.Policy)
	return a.entry(q, http.StatusCreated, created, &fsm.EntityCounts{}), nil
}

func (a *API) updateQueue(q *request, p properties) (*answer, error) {
	old, err := a.deps.Entities.Get(q.ctx, q.where.name)
	if err != nil {
		if asProblem(err).status == http.StatusNotFound {
			return nil, &problem{status: http.StatusNotFound, subCode: 40400, text: noOperation}
		}
		return nil, err
	}
	if old.Kind != fsm.Queue {
		return nil, notImplemented(topicsAndBelow)
	}
	d, err := a.describeQueue(old.Name, p, old)
	if err != nil {
		return nil, err
	}
	if err := a.checkForwards(q, &d); err != nil {
		return nil, err
	}
	updated, err := a.deps.Entities.Update(q.ctx, d)
	if err != nil {
		if asProblem(err).status == http.StatusNotFound { // deleted meanwhile
			return nil, &problem{status: http.StatusNotFound, subCode: 40400, text: noOperation}
		}
		return nil, err
	}
	a.log.Info("queue updated", "name", updated.Name, "policy", q.claim.Policy)
	return a.entry(q, http.StatusOK, updated, nil), nil
}

func (a *API) deleteEntity(q *request) (*answer, error) {
	if !q.claim.Allows(q.where.path, auth.Manage) {
		return nil, &problem{status: http.StatusUnauthorized, text: claimsToDelete}
	}
	if err := checkName(q.host, q.where.name); err != nil {
		return nil, err
	}
	if err := a.deps.Entities.Delete(q.ctx, q.where.name); err != nil {
		if p := asProblem(err); p.status == http.StatusNotFound {
			return nil, &problem{status: http.StatusNotFound, text: noService}
		}
		return nil, err
	}
	a.log.Info("entity deleted", "name", q.where.name, "policy", q.claim.Policy)
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

// checkForwards looks at both forward targets: they exist, are not the queue itself, and the caller
// proves Send on them, by the supplementary token or, without one, by its own (3.3).
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
		target := auth.EntityPath(f.value)
		if !validName(target) {
			return badProperty(f.name, f.value, "The value is no name of an entity.")
		}
		if target == auth.EntityPath(d.Name) {
			return badProperty(f.name, f.value, "An entity cannot forward to itself.")
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
