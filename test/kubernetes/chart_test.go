package kubernetes

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/busbar-mq/busbar/test/kubernetes/manifests"
)

const chart = directory + "/chart"

// render renders the chart for a release. values are YAML, as in a user's values file.
func render(release, values string) (*set, error) {
	s, err := manifests.Render(chart, release, "messaging", values)
	return &set{s}, err
}

// rendered is render for values that the chart must take.
func rendered(t *testing.T, release, values string) *set {
	t.Helper()
	s, err := render(release, values)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// plain takes away what the chart adds to the manifests: labels of Helm, and the annotation by which pods follow the
// configuration. It parses the configuration, because comments do not count.
func (s *set) plain(t *testing.T) map[string]any {
	t.Helper()
	strip := func(m map[string]string) {
		delete(m, "app.kubernetes.io/managed-by")
		delete(m, "helm.sh/chart")
	}
	pod := &s.Stateful.Spec.Template
	delete(pod.Annotations, "checksum/config")
	if len(pod.Annotations) == 0 {
		pod.Annotations = nil
	}
	for _, m := range []map[string]string{s.Stateful.Labels, s.Config.Labels, s.Budget.Labels, s.Isolation.Labels} {
		strip(m)
	}
	var settings map[string]any
	if err := yaml.UnmarshalStrict([]byte(s.Config.Data["busbar.yaml"]), &settings); err != nil {
		t.Fatal(err)
	}
	s.Config.Data = nil
	all := map[string]any{"StatefulSet": s.Stateful, "ConfigMap": s.Config, "busbar.yaml": settings,
		"PodDisruptionBudget": s.Budget, "NetworkPolicy": s.Isolation}
	for name, service := range s.Services {
		strip(service.Labels)
		all["Service "+name] = service
	}
	return all
}

// What helm template renders without values is what kubectl apply would take from the manifests.
func TestChartEqualsTheManifests(t *testing.T) {
	got, want := rendered(t, "busbar", "").plain(t), load(t).plain(t)
	if g, w := slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)); !slices.Equal(g, w) {
		t.Fatalf("the chart has %q, the manifests %q", g, w)
	}
	for name := range want {
		if !reflect.DeepEqual(got[name], want[name]) {
			g, _ := json.MarshalIndent(got[name], "", " ")
			w, _ := json.MarshalIndent(want[name], "", " ")
			t.Errorf("%s differs: the chart has\n%s\nthe manifest\n%s", name, g, w)
		}
	}
}

func TestChartValues(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0a", 32)
	s := rendered(t, "orders", `
replicas: 5
image: {repository: registry.example/busbar, digest: "`+digest+`"}
settings: {partitions: 12, log-level: debug, finalize-upgrades: true}
preUpgradeCheck: {enabled: true, wait: 90s}
storage: {size: 100Gi, className: fast, whenScaled: Delete}
zones: {whenUnsatisfiable: DoNotSchedule}
goMemoryLimit: 7GiB
stop: {preStopSeconds: 15, graceSeconds: 60}
service: {type: LoadBalancer, annotations: {lb.example/internal: "true"}}
networkPolicy: {clients: [{namespaceSelector: {matchLabels: {team: orders}}}]}
tolerations: [{key: dedicated, operator: Equal, value: busbar}]
nodeSelector: {disk: nvme}
priorityClassName: high
podLabels: {team: orders}
serviceMonitor: {enabled: true, labels: {release: prometheus}}
prometheusRule: {enabled: true, labels: {release: prometheus}}
dashboards: {enabled: true}
tls: {certManager: {enabled: true, issuerRef: {name: ca}, dnsNames: [bus.example]}}
entities: {UserConfig: {Namespaces: []}}
`)
	var file struct {
		Expect     int      `json:"bootstrap-expect"`
		Join       []string `json:"join"`
		Partitions int      `json:"partitions"`
		Entities   string   `json:"entities"`
		Finalize   bool     `json:"finalize-upgrades"`
	}
	if err := yaml.Unmarshal([]byte(s.Config.Data["busbar.yaml"]), &file); err != nil {
		t.Fatal(err)
	}
	pod, c, spec := s.Pod(), s.container(t), &s.Stateful.Spec
	client := s.Services["busbar-orders"]
	claim, check := spec.VolumeClaimTemplates[0].Spec, &s.Check.Spec.Template.Spec
	facts := []struct {
		name string
		ok   bool
	}{
		{"five nodes run, three found", *spec.Replicas == 5 && file.Expect == 3 && len(file.Join) == 3},
		{"founders are called by the release", file.Join[2] == "busbar-orders-2.busbar-orders-peers:5302"},
		{"the digest wins", c.Image == "registry.example/busbar@"+digest},
		{"upgrades are finalized", file.Finalize},
		{"an upgrade waits for the health of the cluster", s.Check.Annotations["helm.sh/hook"] == "pre-upgrade" && *s.Check.Spec.BackoffLimit == 0 &&
			check.Containers[0].Image == c.Image && slices.Equal(check.Containers[0].Args,
			[]string{"cluster", "health", "--wait", "90s", "--ops", "http://busbar-orders-peers:5300"})},
		{"the check reaches the operations port, and is no node", s.Isolation.Spec.Ingress[2].From[0].PodSelector.MatchLabels["busbar.dev/operations"] ==
			s.Check.Spec.Template.Labels["busbar.dev/operations"] && !subset(client.Spec.Selector, s.Check.Spec.Template.Labels)},
		{"a setting is passed on, and replaces the chart's", file.Partitions == 12},
		{"entities are a file of the configuration", file.Entities == "/etc/busbar/config/Config.json" &&
			strings.Contains(s.Config.Data["Config.json"], `"Namespaces": []`)},
		{"the volume", *claim.StorageClassName == "fast" && claim.Resources.Requests.Storage().String() == "100Gi" &&
			spec.PersistentVolumeClaimRetentionPolicy.WhenScaled == "Delete" &&
			spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted == "Retain"},
		{"zones are obeyed", pod.TopologySpreadConstraints[0].WhenUnsatisfiable == core.DoNotSchedule},
		{"memory", slices.ContainsFunc(c.Env, func(e core.EnvVar) bool { return e.Name == "GOMEMLIMIT" && e.Value == "7GiB" })},
		{"the stop", c.Lifecycle.PreStop.Sleep.Seconds == 15 && *pod.TerminationGracePeriodSeconds == 60},
		{"the service", client.Spec.Type == core.ServiceTypeLoadBalancer && client.Annotations["lb.example/internal"] == "true"},
		{"only named clients come in", s.Isolation.Spec.Ingress[0].From[0].NamespaceSelector.MatchLabels["team"] == "orders"},
		{"where pods may run", pod.NodeSelector["disk"] == "nvme" && pod.Tolerations[0].Value == "busbar" &&
			pod.PriorityClassName == "high"},
		{"labels of the pod", spec.Template.Labels["team"] == "orders"},
		{"another release selects its own pods", spec.Selector.MatchLabels["app.kubernetes.io/instance"] == "orders" &&
			client.Spec.Selector["app.kubernetes.io/instance"] == "orders"},
		{"the collector's job is what the alerts choose by", s.Monitor.Spec.JobLabel == "app.kubernetes.io/name" &&
			s.Services["busbar-orders-peers"].Labels[s.Monitor.Spec.JobLabel] == "busbar"},
		{"the rules are there", s.Rules.Labels["release"] == "prometheus" && len(s.Rules.Spec.Groups[0].Rules) == 15 &&
			strings.Contains(s.Rules.Spec.Groups[0].Rules[0].Annotations["summary"], "{{ $labels.instance }}")},
		{"the dashboards are there", s.Dashboards.Labels["grafana_dashboard"] == "1" &&
			json.Valid([]byte(s.Dashboards.Data["busbar-cluster.json"])) && json.Valid([]byte(s.Dashboards.Data["busbar-entities.json"]))},
		{"the monitor finds the service of the nodes", s.Monitor.Labels["release"] == "prometheus" &&
			subset(s.Monitor.Spec.Selector.MatchLabels, s.Services["busbar-orders-peers"].Labels) &&
			!subset(s.Monitor.Spec.Selector.MatchLabels, client.Labels) && s.Monitor.Spec.Endpoints[0].Port == "operations"},
		{"the certificate is in the secret of the pods", s.Certificate.Spec.SecretName == "busbar-tls" &&
			s.Certificate.Spec.IssuerRef.Name == "ca"},
		{"clients and nodes find their names in it", slices.Contains(s.Certificate.Spec.DNSNames, "bus.example") &&
			slices.Contains(s.Certificate.Spec.DNSNames, "busbar-orders.messaging.svc") &&
			slices.Contains(s.Certificate.Spec.DNSNames, "*.busbar-orders-peers")},
	}
	for _, f := range facts {
		if !f.ok {
			t.Errorf("not so: %s", f.name)
		}
	}
}

func subset(of, all map[string]string) bool {
	for k, v := range of {
		if all[k] != v {
			return false
		}
	}
	return len(of) > 0
}

// A change of the configuration restarts the pods; another one of the chart's values does not.
func TestChartRestartsPodsForTheirConfiguration(t *testing.T) {
	sum := func(values string) string {
		return rendered(t, "busbar", values).Stateful.Spec.Template.Annotations["checksum/config"]
	}
	base := sum("")
	if base == "" || sum("replicas: 5") != base || sum("settings: {partitions: 7}") == base || sum("entities: {a: 1}") == base {
		t.Error("the annotation does not follow the configuration")
	}
}

// The command line of the check is one of the program: nobody answers, so its exit code is not that of a wrong one.
func TestTheCheckBeforeAnUpgradeRuns(t *testing.T) {
	if rendered(t, "busbar", "").Check.Name != "" {
		t.Error("the check is there although nobody wants it")
	}
	args := rendered(t, "busbar", "preUpgradeCheck: {enabled: true, wait: 1s}").Check.Spec.Template.Spec.Containers[0].Args
	args[len(args)-1] = "http://127.0.0.1:9"
	out, err := exec.Command(binary(t), args...).CombinedOutput()
	var ended *exec.ExitError
	if !errors.As(err, &ended) || ended.ExitCode() != 1 || !strings.Contains(string(out), "connection refused") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestChartRefuses(t *testing.T) {
	for name, c := range map[string]struct{ values, want string }{
		"a value that it does not have":    {"replica: 3", "replica"},
		"a setting that it makes itself":   {"settings: {data-dir: /tmp}", "settings.data-dir: the chart sets it itself"},
		"a digest that is none":            {"image: {digest: sha256:abc}", "digest"},
		"a certificate without an issuer":  {"tls: {certManager: {enabled: true}}", "name the issuer"},
		"a limit of memory without a unit": {"goMemoryLimit: lots", "goMemoryLimit"},
		"no replicas":                      {"replicas: 0", "replicas"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := render("busbar", c.values); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want an error with %q", err, c.want)
			}
		})
	}
}

// A node takes the configuration that the chart makes of settings and entities.
func TestConfigCheckOfTheChart(t *testing.T) {
	s := rendered(t, "busbar", `
settings: {partitions: 12, log-level: debug, finalize-upgrades: true}
entities: {UserConfig: {Namespaces: [{Name: sbemulatorns, Queues: [{Name: orders}]}]}}
`)
	s.Secrets = load(t).Secrets
	key := base64.StdEncoding.EncodeToString(make([]byte, 32))
	cmd := exec.Command(binary(t), "config", "check")
	cmd.Env = s.render(t, t.TempDir(), map[string]string{"root-key": key, "gossip-key": key})
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
