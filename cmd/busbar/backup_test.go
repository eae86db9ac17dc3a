package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/cmd/busbar/client"
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
		ID         string
		Partitions []partition.BackedUp
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) { // until the cluster knows backups
		status, text, _ := d.ask("POST", "/api/backups", nil)
		if status == http.StatusOK {
			if err := json.Unmarshal(text, &made); err != nil {
				t.Fatal(err)
			}
			break
		}
		if status != http.StatusServiceUnavailable || time.Now().After(deadline) {
			t.Fatalf("%d %s", status, text)
		}
	}
	status, entities, _ := d.ask("GET", "/api/backups/"+made.ID+"/catalog", nil)
	if status != http.StatusOK || len(made.Partitions) != 2 {
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

func restoreOverHTTP(t *testing.T, entities []byte, images map[int][]byte) {
	t.Helper()
	d := newDesk(t)
	var r begun
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		status, text, _ := d.ask("POST", "/api/restores", entities)
		if status == http.StatusOK {
			if err := json.Unmarshal(text, &r); err != nil {
				t.Fatal(err)
			}
			break
		}
		if status != http.StatusServiceUnavailable || time.Now().After(deadline) {
			t.Fatalf("%d %s", status, text)
		}
	}
	if status, text, _ := d.ask("POST", "/api/restores/"+r.ID+"/finish", nil); status != http.StatusConflict {
		t.Errorf("finished before its images: %d %s", status, text)
	}
	for _, p := range r.Partitions {
		for range 2 {
			status, text, _ := d.ask("PUT", fmt.Sprintf("/api/restores/%s/partitions/%d", r.ID, p), images[int(p)])
			if status != http.StatusOK || !strings.HasSuffix(string(text), `{"done":true}`+"\n") {
				t.Fatalf("image of partition %d: %d %s", p, status, text)
			}
		}
	}
	status, text, _ := d.ask("POST", "/api/restores/"+r.ID+"/finish", nil)
	if status != http.StatusOK || !strings.Contains(string(text), `"active":20`) {
		t.Fatalf("finish: %d %s", status, text)
	}
	for i, m := range d.lines(d.must(client.NewReceiveCommand(), "", "orders", "--max", "20", "-o", "json")) {
		if want := fmt.Sprintf("text %d", i); !strings.Contains(fmt.Sprint(m), want) {
			t.Errorf("message %d is %v", i, m)
		}
	}
}
