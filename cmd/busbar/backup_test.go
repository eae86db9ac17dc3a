package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/cmd/busbar/client"
	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition"
	"github.com/busbar-mq/busbar/storage"
	"github.com/busbar-mq/busbar/transport/auth"
)

// ask sends a request to the operations port, with a token unless it is refused without.
func (d *desk) ask(method, path string, body []byte) (int, []byte, http.Header) {
	d.t.Helper()
	r, err := http.NewRequestWithContext(d.t.Context(), method, d.base+path, bytes.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	p := d.n.cfg.Policies[0]
	r.Header.Set("Authorization", auth.NewToken("http://"+d.n.host+"/", p.Name, string(p.Primary), time.Now().Add(time.Hour)))
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		d.t.Fatal(err)
	}
	defer answer.Body.Close() //nolint:errcheck // it was read
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return answer.StatusCode, text, answer.Trailer
}

// S-361, S-364, S-367, S-368: a backup goes over the operations port of one node, with real disks, and is restored at another.
func TestBackupAndRestoreOverTheOperationsPort(t *testing.T) {
	d := newDesk(t)
	d.must(client.NewQueueCommand(), "", "create", "orders")
	for i := range 20 {
		d.must(client.NewSendCommand(), "", "orders", fmt.Sprintf("text %d", i))
	}
	var made struct {
		ID, Cluster string
		Partitions  []partition.BackedUp
	}
	d.patiently("POST", "/api/backups", nil, &made)
	status, entities, _ := d.ask("GET", "/api/backups/"+made.ID+"/catalog", nil)
	if status != http.StatusOK || len(made.Partitions) != 2 || len(made.Cluster) != 16 ||
		!strings.Contains(string(entities), fmt.Sprintf("%q", made.Cluster)) {
		t.Fatalf("%d %s, %+v", status, entities, made)
	}
	images := map[int][]byte{}
	messages := uint64(0)
	for _, p := range made.Partitions {
		status, img, trailer := d.ask("GET", fmt.Sprintf("/api/backups/%s/partitions/%d", made.ID, p.ID), nil)
		sum := sha256.Sum256(img)
		if status != http.StatusOK || trailer.Get(imageSum) != hex.EncodeToString(sum[:]) {
			t.Fatalf("image of partition %d: %d, trailer %v", p.ID, status, trailer)
		}
		report, err := partition.CheckImage(bytes.NewReader(img), storage.EachBody)
		if err != nil {
			t.Fatal(err)
		}
		messages += report.Active
		images[int(p.ID)] = img
		for at := 0; at < len(img); at += 1 + len(img)/50 {
			damaged := bytes.Clone(img)
			damaged[at] ^= 4
			if _, err := partition.CheckImage(bytes.NewReader(damaged), storage.EachBody); err == nil {
				t.Errorf("a changed byte at %d of partition %d is not found", at, p.ID)
			}
		}
	}
	if messages != 20 {
		t.Errorf("the images have %d messages", messages)
	}
	if status, text, _ := d.ask("POST", "/api/restores", entities); status != http.StatusConflict || !strings.Contains(string(text), "orders") {
		t.Errorf("a restore into a cluster that has it: %d %s", status, text)
	}
	if status, _, _ := d.ask("DELETE", "/api/backups/"+made.ID, nil); status != http.StatusNoContent {
		t.Errorf("delete: %d", status)
	}
	if status, _, _ := d.ask("GET", "/api/backups/"+made.ID+"/catalog", nil); status != http.StatusNotFound {
		t.Errorf("a deleted backup: %d", status)
	}
	restoreOverHTTP(t, entities, images)
}

// A restore that is interrupted after its end has begun is gone on with: an image that was restored before is taken and left
// alone, and the end may be repeated. Restores whose entities are deleted give their places up.
func TestARestoreGoesOnBehindItsEnd(t *testing.T) {
	d := newDesk(t)
	d.must(client.NewQueueCommand(), "", "create", "orders")
	d.must(client.NewSendCommand(), "", "orders", "text")
	var made struct {
		ID         string
		Partitions []partition.BackedUp
	}
	d.patiently("POST", "/api/backups", nil, &made)
	_, entities, _ := d.ask("GET", "/api/backups/"+made.ID+"/catalog", nil)
	images := map[int][]byte{}
	for _, p := range made.Partitions {
		_, images[int(p.ID)], _ = d.ask("GET", fmt.Sprintf("/api/backups/%s/partitions/%d", made.ID, p.ID), nil)
	}
	into := newDesk(t)
	n := into.n.node
	all := &restores{directory: n.directory, counts: n.router.Counts, open: map[string]*openRestore{}}
	serve := func(h http.HandlerFunc, id, partition string, body []byte) (int, string) {
		req := httptest.NewRequestWithContext(t.Context(), "POST", "/", bytes.NewReader(body))
		req.SetPathValue("id", id)
		req.SetPathValue("partition", partition)
		w := httptest.NewRecorder()
		h(w, req)
		return w.Code, w.Body.String()
	}
	into.patiently("POST", "/api/backups", nil, &made) // until the cluster knows backups
	for range maxRestores + 1 {
		var r begun
		status, text := serve(all.begin, "", "", entities)
		if err := json.Unmarshal([]byte(text), &r); err != nil || status != http.StatusOK {
			t.Fatalf("begin: %d %s", status, text)
		}
		p, done := strconv.Itoa(int(r.Partitions[0])), `{"done":true}`+"\n"
		if _, text := serve(all.image, r.ID, p, images[int(r.Partitions[0])]); !strings.HasSuffix(text, done) {
			t.Fatalf("image: %s", text)
		}
		if err := n.directory.FinishRestore(t.Context(), all.open[r.ID].Restoring); err != nil {
			t.Fatal(err)
		}
		// The answer to the end was lost, so the restore is gone on with.
		if status, text := serve(all.image, r.ID, p, images[int(r.Partitions[0])]); status != http.StatusOK || text != done {
			t.Fatalf("image behind the end: %d %s", status, text)
		}
		into.must(client.NewQueueCommand(), "", "delete", "orders", "--yes")
	}
}

// The end of a restore tells what every share holds. While one of them is silent the end is put off, and told to be.
func TestTheEndOfARestoreCountsAllShares(t *testing.T) {
	one := &openRestore{Restoring: &partition.Restoring{Entities: []*fsm.Descriptor{{Name: "orders"}}}, id: "1",
		expiry: time.AfterFunc(time.Hour, func() {})}
	defer one.expiry.Stop()
	all := &restores{open: map[string]*openRestore{"1": one},
		counts: func(context.Context, *fsm.Descriptor) (fsm.EntityCounts, bool, error) {
			return fsm.EntityCounts{Active: 1}, false, nil
		}}
	req := httptest.NewRequestWithContext(t.Context(), "POST", "/", nil)
	req.SetPathValue("id", "1")
	w := httptest.NewRecorder()
	defer func() {
		if bad := recover(); bad != nil { // there is no directory
			t.Errorf("the restore ended, and one share was not counted: %v", bad)
		}
	}()
	if all.finish(w, req); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "orders") {
		t.Errorf("got %d %s", w.Code, w.Body.String())
	}
}

// A restore makes no entity that the management API could not show or delete, and takes none for a subscription.
func TestARestoreTakesNamesOfEntitiesOnly(t *testing.T) {
	d := newDesk(t)
	d.must(client.NewQueueCommand(), "", "create", "orders")
	var made struct{ ID string }
	d.patiently("POST", "/api/backups", nil, &made)
	_, entities, _ := d.ask("GET", "/api/backups/"+made.ID+"/catalog", nil)
	for _, as := range []string{"orders restored", "orders/", "$orders", "a//b", "t/Subscriptions/s", "t/subscriptions", strings.Repeat("n", 261)} {
		path := "/api/restores?dry-run=true&entity=orders&as=" + url.QueryEscape(as)
		if status, text, _ := d.ask("POST", path, entities); status != http.StatusBadRequest {
			t.Errorf("as %q: %d %s", as, status, text)
		}
	}
	if status, text, _ := d.ask("POST", "/api/restores?dry-run=true&entity=orders&as=a/b~c.d", entities); status != http.StatusOK {
		t.Errorf("as a name: %d %s", status, text)
	}
}

// patiently asks until the cluster knows backups, and decodes the answer.
func (d *desk) patiently(method, path string, body []byte, into any) {
	d.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		status, text, _ := d.ask(method, path, body)
		if status == http.StatusOK {
			if err := json.Unmarshal(text, into); err != nil {
				d.t.Fatal(err)
			}
			return
		}
		if status != http.StatusServiceUnavailable || time.Now().After(deadline) {
			d.t.Fatalf("%d %s", status, text)
		}
	}
}

func restoreOverHTTP(t *testing.T, entities []byte, images map[int][]byte) {
	t.Helper()
	d := newDesk(t)
	var r begun
	d.patiently("POST", "/api/restores", entities, &r)
	if status, text, _ := d.ask("POST", "/api/restores/"+r.ID+"/finish", nil); status != http.StatusConflict {
		t.Errorf("finished before its images: %d %s", status, text)
	}
	first := r.Partitions[0]
	half := images[int(first)][:len(images[int(first)])/2]
	status, text, _ := d.ask("PUT", fmt.Sprintf("/api/restores/%s/partitions/%d", r.ID, first), half)
	if status != http.StatusOK || !strings.Contains(string(text), `"retriable":false`) {
		t.Errorf("half an image: %d %s", status, text)
	}
	for _, p := range r.Partitions {
		for range 2 {
			status, text, _ := d.ask("PUT", fmt.Sprintf("/api/restores/%s/partitions/%d", r.ID, p), images[int(p)])
			if status != http.StatusOK || !strings.HasSuffix(string(text), `{"done":true}`+"\n") {
				t.Fatalf("image of partition %d: %d %s", p, status, text)
			}
		}
	}
	status, text, _ = d.ask("POST", "/api/restores/"+r.ID+"/finish", nil)
	if status != http.StatusOK || !strings.Contains(string(text), `"active":20`) {
		t.Fatalf("finish: %d %s", status, text)
	}
	for i, m := range d.lines(d.must(client.NewReceiveCommand(), "", "orders", "--max", "20", "-o", "json")) {
		if want := fmt.Sprintf("text %d", i); !strings.Contains(fmt.Sprint(m), want) {
			t.Errorf("message %d is %v", i, m)
		}
	}
}
