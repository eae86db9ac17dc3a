package main

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

// wantStatus expects an answer of the management API.
func (e *env) wantStatus(what string, err error, want int) {
	var told *azcore.ResponseError
	e.check(errors.As(err, &told) && told.StatusCode == want, "%s: %v, want status %d", what, err, want)
}

func administration() map[string]scenario {
	return map[string]scenario{
		"admin-queue":         adminQueue,
		"admin-queue-options": adminQueueOptions,
		"admin-queue-list": func(e *env) {
			var want []string
			for range 5 {
				want = append(want, e.queue(nil))
			}
			// Other scenarios create and delete meanwhile, which shifts pages; a quiet list holds them all.
			e.until("every queue is listed", func() bool {
				var all []string
				for p := e.admin(0).NewListQueuesPager(&admin.ListQueuesOptions{MaxPageSize: 2}); p.More(); {
					page, err := p.NextPage(e.ctx)
					e.must("list", err)
					e.check(len(page.Queues) <= 2, "a page of %d", len(page.Queues))
					for _, q := range page.Queues {
						all = append(all, q.QueueName)
					}
				}
				return !slices.ContainsFunc(want, func(q string) bool { return !slices.Contains(all, q) })
			})
		},
		"admin-conflict": func(e *env) {
			_, err := e.admin(1).CreateQueue(e.ctx, e.queue(nil), nil)
			e.wantStatus("create again", err, http.StatusConflict)
		},
		"admin-missing": func(e *env) {
			name, a := e.name("q"), e.admin(0)
			q, err := a.GetQueue(e.ctx, name, nil)
			e.must("get", err)
			e.check(q == nil, "a queue that nobody created has properties")
			p, err := a.GetQueueRuntimeProperties(e.ctx, name, nil)
			e.must("get counts", err)
			e.check(p == nil, "a queue that nobody created has counts")
			_, err = a.DeleteQueue(e.ctx, name, nil)
			e.wantStatus("delete", err, http.StatusNotFound)
		},
		"admin-counts": adminCounts,
		"admin-namespace": func(e *env) {
			p, err := e.admin(0).GetNamespaceProperties(e.ctx, nil)
			e.must("get the namespace", err)
			e.check(p.Name != "" && slices.Contains([]string{"Basic", "Standard", "Premium"}, p.SKU),
				"namespace %q of %q", p.Name, p.SKU)
		},
		"admin-refused": adminRefused,
		"admin-names": func(e *env) {
			for _, tail := range []string{"/a/b", ".x-y_z", "-" + strings.Repeat("n", 150)} {
				name := e.name("q") + tail
				e.queueOf(name, nil)
				got, err := e.admin(1).GetQueue(e.ctx, name, nil)
				e.must("get", err)
				e.check(got != nil, "%s is not there", name)
				e.send(0, name, text(tail))
				r := e.receiver(1, name)
				m := e.one(r)
				e.equal("body", string(m.Body), tail)
				e.complete(r, m)
				e.peek(r)
			}
		},
		"admin-disabled": adminDisabled,
		"auth-wrong-key": func(e *env) {
			q := e.queue(nil)
			c := e.clientFor(wrongKey(e.dataString(0)))
			s, err := c.NewSender(q, nil)
			e.must("new sender", err)
			e.wantCode("send", s.SendMessage(e.ctx, text("x"), nil), azservicebus.CodeUnauthorizedAccess)
			r, err := c.NewReceiverForQueue(q, nil)
			e.must("new receiver", err)
			_, err = r.ReceiveMessages(e.ctx, 1, nil)
			e.wantCode("receive", err, azservicebus.CodeUnauthorizedAccess)
		},
		"auth-signature": func(e *env) {
			q := e.queue(nil)
			send := func(expiry time.Time, body string) error {
				s, err := e.clientFor(signature(e.dataString(0), q, expiry)).NewSender(q, nil)
				e.must("new sender", err)
				return s.SendMessage(e.ctx, text(body), nil)
			}
			e.must("send", send(time.Now().Add(time.Hour), "signed"))
			r := e.receiver(0, q)
			e.complete(r, e.one(r))
			e.wantCode("send with an expired signature", send(time.Now().Add(-time.Hour), "stale"),
				azservicebus.CodeUnauthorizedAccess)
		},
		"auth-admin": func(e *env) {
			_, err := e.adminFor(wrongKey(e.adminString(0))).CreateQueue(e.ctx, e.name("q"), nil)
			e.wantStatus("create with a wrong key", err, http.StatusUnauthorized)
		},
	}
}

var sharedKey = regexp.MustCompile(`SharedAccessKey=[^;]*`)

func wrongKey(cs string) string { return sharedKey.ReplaceAllString(cs, "SharedAccessKey=wrong") }

// signature signs the queue's address as an application that hands out tokens does.
func signature(cs, queue string, expiry time.Time) string {
	endpoint, _, _ := strings.Cut(cs, ";")
	host := strings.Trim(strings.TrimPrefix(endpoint, "Endpoint=sb://"), "/")
	resource := url.QueryEscape("sb://" + host + "/" + queue)
	mac := hmac.New(sha256.New, []byte(os.Getenv("BUSBAR_KEY")))
	fmt.Fprintf(mac, "%s\n%d", resource, expiry.Unix())
	s := fmt.Sprintf("%s;SharedAccessSignature=SharedAccessSignature sr=%s&sig=%s&se=%d&skn=%s", endpoint, resource,
		url.QueryEscape(base64.StdEncoding.EncodeToString(mac.Sum(nil))), expiry.Unix(), os.Getenv("BUSBAR_KEY_NAME"))
	if strings.Contains(cs, "UseDevelopmentEmulator") {
		s += ";UseDevelopmentEmulator=true"
	}
	return s
}

func adminQueue(e *env) {
	name := e.queue(&admin.QueueProperties{LockDuration: to("PT45S"), UserMetadata: to("note")})
	read, err := e.admin(1).GetQueue(e.ctx, name, nil)
	e.must("get", err)
	e.equal("properties", []string{deref(read.LockDuration), deref(read.UserMetadata)}, []string{"PT45S", "note"})
	upper, err := e.admin(1).GetQueue(e.ctx, strings.ToUpper(name), nil)
	e.must("get in capitals", err)
	e.check(upper != nil, "names must compare without case")
	read.MaxDeliveryCount, read.UserMetadata = to(int32(11)), to("changed")
	a := e.admin(0)
	changed, err := a.UpdateQueue(e.ctx, name, read.QueueProperties, nil)
	e.must("update", err)
	e.equal("changed", []any{deref(changed.MaxDeliveryCount), deref(changed.UserMetadata)}, []any{int32(11), "changed"})
	_, err = a.DeleteQueue(e.ctx, name, nil)
	e.must("delete", err)
	for i := range 3 {
		gone, err := e.admin(i).GetQueue(e.ctx, name, nil)
		e.must("get what is deleted", err)
		e.check(gone == nil, "the deleted queue is there")
	}
}

func adminQueueOptions(e *env) {
	key := func() *string {
		var b [32]byte
		_, _ = rand.Read(b[:])
		return to(base64.StdEncoding.EncodeToString(b[:]))
	}
	target := e.queue(nil)
	want := admin.QueueProperties{LockDuration: to("PT2M"), MaxSizeInMegabytes: to(int32(2048)),
		RequiresDuplicateDetection: to(true), RequiresSession: to(false), DefaultMessageTimeToLive: to("PT1H30M"),
		DeadLetteringOnMessageExpiration: to(true), DuplicateDetectionHistoryTimeWindow: to("PT20M"),
		MaxDeliveryCount: to(int32(17)), EnableBatchedOperations: to(false), Status: to(admin.EntityStatusActive),
		AutoDeleteOnIdle: to("P1D"), EnablePartitioning: to(false), UserMetadata: to(`ü <&> "note"`),
		ForwardDeadLetteredMessagesTo: &target,
		AuthorizationRules: []admin.AuthorizationRule{{KeyName: to("both"), PrimaryKey: key(), SecondaryKey: key(),
			AccessRights: []admin.AccessRight{admin.AccessRightListen, admin.AccessRightSend}}},
	}
	name := e.queue(&want)
	got, err := e.admin(1).GetQueue(e.ctx, name, nil)
	e.must("get", err)
	told := func(p admin.QueueProperties) []any {
		r := p.AuthorizationRules[0]
		slices.Sort(r.AccessRights)
		return []any{deref(p.LockDuration), deref(p.MaxSizeInMegabytes), deref(p.RequiresDuplicateDetection),
			deref(p.RequiresSession), deref(p.DefaultMessageTimeToLive), deref(p.DeadLetteringOnMessageExpiration),
			deref(p.DuplicateDetectionHistoryTimeWindow), deref(p.MaxDeliveryCount), deref(p.EnableBatchedOperations),
			deref(p.Status), deref(p.AutoDeleteOnIdle), deref(p.EnablePartitioning), deref(p.UserMetadata),
			deref(r.KeyName), deref(r.PrimaryKey), deref(r.SecondaryKey), r.AccessRights}
	}
	e.equal("properties", told(got.QueueProperties), told(want))
	e.check(strings.HasSuffix(deref(got.ForwardDeadLetteredMessagesTo), target), "dead letters go to %s, want %s",
		deref(got.ForwardDeadLetteredMessagesTo), target)
}

func adminCounts(e *env) {
	q, _ := filled(e, 4)
	e.schedule(q, time.Now().Add(time.Minute), "later")
	r := e.receiver(1, q)
	e.must("dead-letter", r.DeadLetterMessage(e.ctx, e.one(r), nil))
	var got *admin.GetQueueRuntimePropertiesResponse
	e.until("the counts", func() bool {
		var err error
		got, err = e.admin(2).GetQueueRuntimeProperties(e.ctx, q, nil)
		e.must("get counts", err)
		return got.ActiveMessageCount == 3
	})
	e.equal("counts", []int64{int64(got.DeadLetterMessageCount), int64(got.ScheduledMessageCount), got.TotalMessageCount,
		int64(got.TransferMessageCount), int64(got.TransferDeadLetterMessageCount)}, []int64{1, 1, 5, 0, 0})
	e.check(got.SizeInBytes > 0, "size %d", got.SizeInBytes)
	e.check(!got.CreatedAt.IsZero() && !got.UpdatedAt.IsZero() && !got.AccessedAt.IsZero(), "a time is missing")
}

func adminRefused(e *env) {
	a := e.admin(0)
	for _, p := range []admin.QueueProperties{
		{LockDuration: to("PT6M")}, {LockDuration: to("PT1S")}, {MaxDeliveryCount: to(int32(0))},
		{RequiresDuplicateDetection: to(true), DuplicateDetectionHistoryTimeWindow: to("P8D")},
	} {
		_, err := a.CreateQueue(e.ctx, e.name("q"), &admin.CreateQueueOptions{Properties: &p})
		e.wantStatus("create", err, http.StatusBadRequest)
		e.told("create", err, "<Detail>")
	}
	q := e.queue(nil)
	read, err := a.GetQueue(e.ctx, q, nil)
	e.must("get", err)
	read.RequiresSession = to(true)
	_, err = a.UpdateQueue(e.ctx, q, read.QueueProperties, nil)
	e.wantStatus("update", err, http.StatusBadRequest)
}

func adminDisabled(e *env) {
	q, a := e.queue(nil), e.admin(0)
	set := func(status admin.EntityStatus) {
		p, err := a.GetQueue(e.ctx, q, nil)
		e.must("get", err)
		p.Status = &status
		_, err = a.UpdateQueue(e.ctx, q, p.QueueProperties, nil)
		e.must("update", err)
	}
	e.send(0, q, text("before"))
	set(admin.EntityStatusDisabled)
	const disabled = "entity-disabled"
	e.told("send", e.sender(1, q).SendMessage(e.ctx, text("x"), nil), disabled)
	_, err := e.receiver(1, q).ReceiveMessages(e.ctx, 1, nil)
	e.told("receive", err, disabled)
	set(admin.EntityStatusSendDisabled)
	e.told("send", e.sender(1, q).SendMessage(e.ctx, text("x"), nil), disabled)
	r := e.receiver(1, q)
	e.complete(r, e.one(r))
	set(admin.EntityStatusActive)
	e.send(0, q, text("after"))
	e.complete(r, e.one(r))
}
