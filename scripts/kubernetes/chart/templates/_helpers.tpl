{{/* The name of everything: the release's, or busbar-RELEASE where the release is not named after busbar. */}}
{{- define "busbar.name" -}}
{{- if contains "busbar" .Release.Name -}}{{ .Release.Name }}{{- else -}}busbar-{{ .Release.Name }}{{- end -}}
{{- end -}}

{{/* What selects the pods of this release. It never changes: a StatefulSet refuses another selector. */}}
{{- define "busbar.selector" -}}
app.kubernetes.io/name: busbar
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "busbar.labels" -}}
{{ include "busbar.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- define "busbar.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* The names of the founders in the Service of the nodes. */}}
{{- define "busbar.founders" -}}
{{- $name := include "busbar.name" . -}}
{{- range $i := until (int .Values.founders) }}
- {{ $name }}-{{ $i }}.{{ $name }}-peers:5302
{{- end }}
{{- end -}}

{{/* The file busbar.yaml. A value of settings that the chart decides itself is an error, not ignored. */}}
{{- define "busbar.settings" -}}
{{- $own := list "data-dir" "amqp-listen" "tls-listen" "ops-listen" "peer-listen" "gossip-listen" "tls-cert" "tls-key" "tls-ca" "bootstrap-expect" "join" "entities" "root-key" "gossip-key" "node-id" "advertise" -}}
{{- range $key, $_ := .Values.settings }}
{{- if has $key $own }}{{ fail (printf "settings.%s: the chart sets it itself; remove it" $key) }}{{ end }}
{{- end -}}
data-dir: /var/lib/busbar
# Only TLS leaves the pod. Plain AMQP is for the pod itself.
amqp-listen: ["127.0.0.1:5672"]
tls-listen: [":5671"]
# The probes come from the kubelet, so not loopback; the network policy keeps others out.
ops-listen: ":5300"
peer-listen: ":5301"
gossip-listen: ":5302"
tls-cert: /etc/busbar/tls/tls.crt
tls-key: /etc/busbar/tls/tls.key
tls-ca: /etc/busbar/tls/ca.crt
bootstrap-expect: {{ .Values.founders }}
# Names, not addresses: a pod comes back under another address. They are resolved at every attempt.
join:
  {{- include "busbar.founders" . | nindent 2 }}
{{- if .Values.entities }}
entities: /etc/busbar/config/Config.json
{{- end }}
{{- with .Values.settings }}
{{ toYaml . }}
{{- end }}
{{- end -}}
