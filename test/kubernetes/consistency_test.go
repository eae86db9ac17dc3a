package kubernetes

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"
)

// The longest orderly stop of a node, in seconds: stopTimeout of cmd/busbar.
const orderlyStop = 20

func TestPod(t *testing.T) {
	s := load(t)
	pod, c := s.Pod(), s.container(t)
	truth := func(p *bool) bool { return p != nil && *p }
	facts := []struct {
		name string
		ok   bool
	}{
		{"nobody runs as root", truth(pod.SecurityContext.RunAsNonRoot) && *pod.SecurityContext.RunAsUser > 0},
		{"the volume belongs to the user", *pod.SecurityContext.FSGroup == *pod.SecurityContext.RunAsGroup},
		{"the root file system is read-only", truth(c.SecurityContext.ReadOnlyRootFilesystem)},
		{"no privilege is gained", c.SecurityContext.AllowPrivilegeEscalation != nil &&
			!*c.SecurityContext.AllowPrivilegeEscalation},
		{"no capability is left", slices.Equal(c.SecurityContext.Capabilities.Drop, []core.Capability{"ALL"})},
		{"system calls are filtered", pod.SecurityContext.SeccompProfile.Type == core.SeccompProfileTypeRuntimeDefault},
		{"no token of the API is mounted", !truth(pod.AutomountServiceAccountToken) && pod.AutomountServiceAccountToken != nil},
		{"services add no BUSBAR_ variable", pod.EnableServiceLinks != nil && !*pod.EnableServiceLinks},
		{"two nodes share no machine", len(pod.Affinity.PodAntiAffinity.
			RequiredDuringSchedulingIgnoredDuringExecution) == 1},
		{"no node waits for another to be ready", s.Stateful.Spec.PodManagementPolicy == "Parallel"},
		{"the next node goes after the last one is settled", s.Stateful.Spec.MinReadySeconds > 0},
		{"there are three", *s.Stateful.Spec.Replicas == 3},
		{"one at a time may be away", s.Budget.Spec.MaxUnavailable.IntValue() == 1},
		{"a node that waits for its peers is found by them", s.Services["busbar-peers"].Spec.PublishNotReadyAddresses &&
			s.Services["busbar-peers"].Spec.ClusterIP == core.ClusterIPNone},
		{"the set's names are in the service of the nodes", s.Stateful.Spec.ServiceName == "busbar-peers"},
		{"volumes outlive the set", s.Stateful.Spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted == "Retain"},
		{"liveness does not depend on the peers", c.LivenessProbe.HTTPGet.Path == "/livez" &&
			c.StartupProbe.HTTPGet.Path == "/livez"},
		{"readiness depends on them", c.ReadinessProbe.HTTPGet.Path == "/readyz"},
		{"the stop needs no shell", c.Lifecycle.PreStop.Exec == nil && c.Lifecycle.PreStop.Sleep != nil},
		{"there is time for an orderly stop", *pod.TerminationGracePeriodSeconds >=
			c.Lifecycle.PreStop.Sleep.Seconds+orderlyStop+5},
		{"the collector knows the limit", goLimit(t, c) < c.Resources.Limits.Memory().Value()},
	}
	for _, f := range facts {
		if !f.ok {
			t.Errorf("not so: %s", f.name)
		}
	}
}

func goLimit(t *testing.T, c *core.Container) int64 {
	t.Helper()
	for _, e := range c.Env {
		if e.Name == "GOMEMLIMIT" {
			n, err := strconv.ParseInt(strings.TrimSuffix(e.Value, "MiB"), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n << 20
		}
	}
	t.Fatal("GOMEMLIMIT is not set")
	return 0
}

// TestSelectors checks that everything that selects pods selects these.
func TestSelectors(t *testing.T) {
	s := load(t)
	pod := s.Stateful.Spec.Template.Labels
	chosen := map[string]map[string]string{
		"the set":               s.Stateful.Spec.Selector.MatchLabels,
		"the disruption budget": s.Budget.Spec.Selector.MatchLabels,
		"the network policy":    s.Isolation.Spec.PodSelector.MatchLabels,
		"anti-affinity": s.Pod().Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].
			LabelSelector.MatchLabels,
		"topology spread": s.Pod().TopologySpreadConstraints[0].LabelSelector.MatchLabels,
	}
	for name, service := range s.Services {
		chosen["service "+name] = service.Spec.Selector
	}
	if len(chosen) != 7 {
		t.Errorf("%d selectors, want 7", len(chosen))
	}
	for who, labels := range chosen {
		if len(labels) == 0 {
			t.Errorf("%s selects nothing in particular", who)
		}
		for k, v := range labels {
			if pod[k] != v {
				t.Errorf("%s wants %s=%s, the pod has %q", who, k, v, pod[k])
			}
		}
	}
}

// TestPorts checks that listeners, container ports, services, probes and the network policy agree.
func TestPorts(t *testing.T) {
	s := load(t)
	c := s.container(t)
	byName, open := map[string]core.ContainerPort{}, map[string]bool{}
	for _, p := range c.Ports {
		byName[p.Name] = p
		open[strconv.Itoa(int(p.ContainerPort))+"/"+string(protocol(p.Protocol))] = true
	}
	var file struct {
		TLS    []string `json:"tls-listen"`
		Ops    string   `json:"ops-listen"`
		Peer   string   `json:"peer-listen"`
		Gossip string   `json:"gossip-listen"`
		Expect int      `json:"bootstrap-expect"`
		Join   []string `json:"join"`
	}
	if err := yaml.Unmarshal([]byte(s.Config.Data["busbar.yaml"]), &file); err != nil {
		t.Fatal(err)
	}
	listens := map[string]string{"amqps": file.TLS[0], "operations": file.Ops, "peers": file.Peer,
		"gossip": file.Gossip, "gossip-udp": file.Gossip}
	for name, addr := range listens {
		if got := ":" + strconv.Itoa(int(byName[name].ContainerPort)); got != addr {
			t.Errorf("container port %s is %s, the configuration listens on %s", name, got, addr)
		}
	}
	if len(byName) != len(listens) {
		t.Errorf("%d container ports, %d listeners", len(byName), len(listens))
	}
	for name, service := range s.Services {
		for _, p := range service.Spec.Ports {
			to, ok := byName[p.TargetPort.StrVal]
			if !ok || protocol(to.Protocol) != protocol(p.Protocol) {
				t.Errorf("service %s: port %s leads nowhere", name, p.Name)
			}
		}
	}
	for _, rule := range s.Isolation.Spec.Ingress {
		for _, p := range rule.Ports {
			at := p.Port.String() + "/" + string(protocol(*p.Protocol))
			if !open[at] {
				t.Errorf("the network policy speaks of %s, where nobody listens", at)
			}
			delete(open, at)
		}
	}
	if len(open) > 0 {
		t.Errorf("the network policy closes %v to everybody", open)
	}
	for _, probe := range []*core.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		if probe.HTTPGet.Port != intstr.FromString("operations") {
			t.Errorf("the probe of %s asks port %s", probe.HTTPGet.Path, probe.HTTPGet.Port.String())
		}
	}
	if file.Expect != int(*s.Stateful.Spec.Replicas) || len(file.Join) != file.Expect {
		t.Errorf("%d replicas, %d founders, %d names to join", *s.Stateful.Spec.Replicas, file.Expect, len(file.Join))
	}
	for i, join := range file.Join {
		if want := s.Stateful.Name + "-" + strconv.Itoa(i) + "." + s.Stateful.Spec.ServiceName + file.Gossip; join != want {
			t.Errorf("join %s, want %s", join, want)
		}
	}
}

func protocol(p core.Protocol) core.Protocol {
	if p == "" {
		return core.ProtocolTCP
	}
	return p
}

// TestVolumes checks that every file of the configuration is in a volume, and only data can be
// written.
func TestVolumes(t *testing.T) {
	s := load(t)
	sources := map[string]core.Volume{}
	for _, v := range s.Pod().Volumes {
		sources[v.Name] = v
	}
	mounts := map[string]core.VolumeMount{}
	for _, m := range s.container(t).VolumeMounts {
		mounts[m.MountPath] = m
		if m.ReadOnly == (m.Name == s.Stateful.Spec.VolumeClaimTemplates[0].Name) {
			t.Errorf("volume %s: read-only is %t", m.Name, m.ReadOnly)
		}
	}
	var file map[string]any
	if err := yaml.Unmarshal([]byte(s.Config.Data["busbar.yaml"]), &file); err != nil {
		t.Fatal(err)
	}
	if _, ok := mounts[file["data-dir"].(string)]; !ok {
		t.Errorf("data-dir %s is no volume", file["data-dir"])
	}
	secret := sources[mounts["/etc/busbar/tls"].Name].Secret
	keys := s.Secrets[secret.SecretName].StringData
	if *secret.DefaultMode != 0o440 {
		t.Errorf("keys have mode %o", *secret.DefaultMode)
	}
	for _, setting := range []string{"tls-cert", "tls-key", "tls-ca"} {
		dir, name, ok := strings.Cut(file[setting].(string), "/tls/")
		if _, has := keys[name]; !ok || dir != "/etc/busbar" || !has {
			t.Errorf("%s is %s, which no volume holds", setting, file[setting])
		}
	}
	if got := sources[mounts["/etc/busbar/config"].Name].ConfigMap.Name; got != s.Config.Name {
		t.Errorf("the configuration is mounted from %s", got)
	}
}
