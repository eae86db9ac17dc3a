package monitoring

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/storage"
)

const root = "../.." // of the repository

func read(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// language is PromQL as Prometheus has it without feature flags.
func language() parser.Parser { return parser.NewParser(parser.Options{}) }

// alertRules returns the rules of alerts.yaml, as Prometheus reads them.
func alertRules(t *testing.T) []rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.Parse(read(t, "scripts/monitoring/alerts.yaml"), false, model.UTF8Validation, language(), quiet())
	for _, err := range errs {
		t.Error(err)
	}
	if groups == nil || len(groups.Groups) != 1 {
		t.Fatal("alerts.yaml has not one group")
	}
	return groups.Groups[0].Rules
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// start is when the series of every test begin.
var start = time.Unix(0, 0).UTC()

// evaluator asks one storage.
type evaluator struct {
	engine *promql.Engine
	data   storage.Queryable
}

func newEvaluator(t *testing.T, data storage.Queryable) *evaluator {
	return &evaluator{promqltest.NewTestEngine(t, false, 5*time.Minute, 1_000_000), data}
}

// value returns what an expression says at a time.
func (e *evaluator) value(t *testing.T, expr string, at time.Duration) promql.Vector {
	t.Helper()
	q, err := e.engine.NewInstantQuery(t.Context(), e.data, nil, expr, start.Add(at))
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	defer q.Close()
	v, err := q.Exec(t.Context()).Vector()
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	return append(promql.Vector(nil), v...)
}

// firing returns the alerts of a rule that fire at a time. The rule was evaluated once a minute until then.
func (e *evaluator) firing(t *testing.T, r *rulefmt.Rule, at time.Duration) (found []*rules.Alert) {
	t.Helper()
	expr, err := language().ParseExpr(r.Expr)
	if err != nil {
		t.Fatal(err)
	}
	rule := rules.NewAlertingRule(r.Alert, expr, time.Duration(r.For), time.Duration(r.KeepFiringFor),
		labels.FromMap(r.Labels), labels.FromMap(r.Annotations), labels.EmptyLabels(), "", false, quiet())
	for now := time.Duration(0); now <= at; now += time.Minute {
		if _, err := rule.Eval(t.Context(), 0, start.Add(now), rules.EngineQueryFunc(e.engine, e.data), nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	for _, a := range rule.ActiveAlerts() {
		if a.State == rules.StateFiring {
			found = append(found, a)
		}
	}
	return found
}
