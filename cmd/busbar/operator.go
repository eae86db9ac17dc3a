package main

import (
	"net/http"
	"strings"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport"
	"github.com/busbar-mq/busbar/transport/rest"
)

// withOperator puts the operators' view of entities in front of the handler of the operations port.
func (n *node) withOperator(next http.Handler) (http.Handler, error) {
	operator, err := rest.NewOperator(rest.OperatorDeps{
		Entities: n.directory, Shares: n.front, Replicas: n.router, Policies: n.policies, Now: time.Now,
		Suspend:      n.directory.Suspend,
		Show:         func(d *fsm.Delivery) (any, error) { return transport.Show(d) },
		Look:         transport.Look,
		Transactions: func(entity string, ended bool) any { return n.front.Transactions(entity, ended) },
		Holder: func(by fsm.RequestID) (client, link, remote string) {
			h := n.front.Holder(by)
			return h.Client, h.Link, h.Remote
		},
		RequestTimeout: rest.Defaults().RequestTimeout, Refusals: n.refusals, Log: n.log.Named("http"),
	})
	if err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, rest.OperatorPrefix) {
			operator.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	}), nil
}
