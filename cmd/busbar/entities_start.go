package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/cmd/busbar/entities"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
	"github.com/busbar-mq/busbar/transport/audit"
	"github.com/busbar-mq/busbar/transport/auth"
	"github.com/busbar-mq/busbar/transport/rest"
)

// entitiesPause is the pause before a file is tried again while the cluster is not ready.
const entitiesPause = time.Second

// startEntities makes what the file of --entities asks for, once the cluster can. Every node of a
// cluster may have the file: what another one made is there already. A mistake in the file keeps the
// node from starting; what the broker refuses ends it.
func (n *node) startEntities(context.Context) error {
	if n.cfg.Entities == "" {
		return nil
	}
	all, notes, err := entities.Read(n.cfg.Entities)
	if err == nil {
		err = judgeEntities(n.cfg.Entities, all, n.cfg.restConfig())
	}
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	log := n.log.Named("entities")
	for _, note := range notes {
		log.Info(note)
	}
	t, err := n.insider()
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	m := &dial.Management{Target: t, Limit: time.Minute, HTTP: &http.Client{Transport: inside{n.audit.Requests(audit.ViaNode, n.api.Inside())}}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			a := &entities.Applier{API: m, Say: func(format string, args ...any) { log.Info(fmt.Sprintf(format, args...)) }}
			err := a.Apply(n.background, all)
			switch {
			case err == nil:
				log.Info("entities are there", "file", n.cfg.Entities, "entities", len(all), "created", a.Created,
					"differ", a.Drifted)
				close(n.entitiesMade)
				return
			case n.background.Err() != nil:
				return
			case !n.retryEntities(err):
				n.fail(fmt.Errorf("entities %s: %w", n.cfg.Entities, err))
				return
			}
			log.Debug("entities are tried again", "error", err)
			if !sleep(n.background, entitiesPause, nil) {
				return
			}
		}
	}()
	n.onClose(func(context.Context) error { n.cancel(); <-done; return nil })
	return nil
}

// checkEntities reads and judges a file of entities with the settings of this node.
func checkEntities(file string, limits rest.Config) error {
	all, _, err := entities.Read(file)
	if err != nil {
		return err
	}
	return judgeEntities(file, all, limits)
}

// judgeEntities says what the management API would say to the descriptions of a file, all faults together.
func judgeEntities(file string, all []entities.Spec, limits rest.Config) error {
	err := entities.Check(all, func(path, element, inner string) error {
		if err := rest.Validate(limits, path, strings.NewReader(dial.Document(element, inner))); err != nil {
			return exit.With(exit.Usage, err)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("entities %s: %w", file, err)
	}
	return nil
}

// retryEntities reports whether the cluster may do later what it did not now. It may while it gets ready, or when
// another node has just made the same.
func (n *node) retryEntities(err error) bool {
	code := exit.Code(err)
	return code == exit.Failed || code == exit.Conflict
}

// insider is a client with a key of the configuration that may manage.
func (n *node) insider() (*dial.Target, error) {
	for _, p := range n.keys.configured() {
		if p.Rights&auth.Manage != 0 {
			return &dial.Target{Host: "localhost", Plain: true, KeyName: p.Name, Key: string(p.Primary)}, nil
		}
	}
	return nil, errors.New("entities: no policy has the right Manage")
}

// inside takes a request to a handler of this process.
type inside struct{ handler http.Handler }

// RoundTrip implements http.RoundTripper.
func (i inside) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	served := r.Clone(r.Context())
	served.Host = r.URL.Host
	if served.Body == nil {
		served.Body = http.NoBody
	}
	w := &insideWriter{header: http.Header{}, status: http.StatusOK}
	i.handler.ServeHTTP(w, served)
	return &http.Response{StatusCode: w.status, Header: w.header, Request: r,
		Body: io.NopCloser(&w.body)}, nil
}

type insideWriter struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *insideWriter) Header() http.Header         { return w.header }
func (w *insideWriter) WriteHeader(status int)      { w.status = status }
func (w *insideWriter) Write(b []byte) (int, error) { return w.body.Write(b) }
