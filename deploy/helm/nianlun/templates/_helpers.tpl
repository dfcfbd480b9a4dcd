{{- define "nianlun.labels" -}}
app.kubernetes.io/name: nianlun
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
app.kubernetes.io/component: {{ .name }}
{{- end }}

{{- define "nianlun.selector" -}}
app.kubernetes.io/name: nianlun
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .name }}
{{- end }}

{{/* Of one process: "release-name-process", at most 63 characters. */}}
{{- define "nianlun.name" -}}
{{- printf "%s-%s" (.root.Release.Name | trunc 40 | trimSuffix "-") .name }}
{{- end }}

{{- define "nianlun.image" -}}
{{- $v := .root.Values -}}
{{- if $v.image.registry }}{{ $v.image.registry }}/{{ end }}nianlun-{{ .image }}:{{ $v.image.tag | default .root.Chart.AppVersion }}
{{- end }}

{{/* The database as one role; libpq takes the password from PGPASSWORD. */}}
{{- define "nianlun.dsn" -}}
{{- $d := .root.Values.database -}}
postgresql://{{ .role }}@{{ $d.host }}:{{ $d.port }}/{{ $d.name }}?sslmode={{ $d.sslmode }}
{{- end }}

{{- define "nianlun.secret" -}}
- name: {{ .variable }}
  valueFrom:
    secretKeyRef: {name: {{ .root.Values.existingSecret }}, key: {{ .key }}}
{{- end }}

{{/* gRPC names of services resolve to all pods (headless), so that clients balance over them. */}}
{{- define "nianlun.target" -}}
{{ include "nianlun.name" . }}.{{ .root.Release.Namespace }}.svc:{{ .port }}
{{- end }}

{{- define "nianlun.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "nianlun.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "nianlun.terminationSeconds" -}}
{{- $s := .Values.shutdown -}}
{{- add $s.preStopSeconds $s.drainSeconds $s.graceSeconds $s.marginSeconds -}}
{{- end }}

{{/* Which processes there are, with their ports, roles and neighbours: the one table of this chart.
     The MCP server has the client's variables, without a prefix, and no key of its own. */}}
{{- define "nianlun.table" -}}
embedder: {port: 50051, role: embedder, prefix: EMBEDDER, targets: []}
retriever: {port: 50052, role: retriever, prefix: RETRIEVER, targets: [embedder]}
retriever-worker: {role: retriever, prefix: RETRIEVER, targets: [embedder], maintenance: true}
memory: {port: 50053, role: memory, prefix: MEMORY, targets: [embedder], llm: true}
memory-worker: {role: memory, prefix: MEMORY, targets: [embedder], llm: true}
orchestrator: {port: 50054, role: orchestrator, prefix: ORCHESTRATOR, targets: [memory, retriever], llm: true}
gateway: {port: 8080, http: true, prefix: GATEWAY, targets: [embedder, retriever, memory, orchestrator]}
{{- if .Values.processes.mcp.enabled }}
mcp: {port: 8090, http: true, targets: [retriever, memory, orchestrator]}
{{- end }}
{{- end }}
