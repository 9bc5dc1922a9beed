{{- define "spillway.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "spillway.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains (include "spillway.name" .) .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "spillway.name" .) | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- /* What is not in a namespace carries the release's, so that two releases of one name do not meet. */ -}}
{{- define "spillway.clusterName" -}}
{{- printf "%s:%s" .Release.Namespace (include "spillway.fullname" .) -}}
{{- end -}}

{{- define "spillway.selector" -}}
app.kubernetes.io/name: {{ include "spillway.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- /* That of the pod of `helm test`. It lacks the name, so that the pod is never among those of a Service. */ -}}
{{- define "spillway.testSelector" -}}
app.kubernetes.io/component: test
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "spillway.labels" -}}
{{ include "spillway.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{- end -}}

{{- define "spillway.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "spillway.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.name is needed when serviceAccount.create is false" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "spillway.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "spillway.tlsSecret" -}}
{{- if eq .Values.tls.source "secret" -}}
{{- required "tls.secretName is needed when tls.source is secret" .Values.tls.secretName -}}
{{- else -}}
{{- printf "%s-tls" (include "spillway.fullname" .) -}}
{{- end -}}
{{- end -}}

{{- /* The names under which clients reach it, in JSON. */ -}}
{{- define "spillway.names" -}}
{{- $name := include "spillway.fullname" . -}}
{{- $namespace := .Release.Namespace -}}
{{- concat (list
  (printf "%s.%s.svc" $name $namespace)
  (printf "%s.%s.svc.cluster.local" $name $namespace)
  (printf "%s.%s" $name $namespace)
  $name
  "localhost") .Values.tls.extraNames | uniq | toJson -}}
{{- end -}}

{{- /* The configuration file: what the chart decides, and what the user adds to it. */ -}}
{{- define "spillway.config" -}}
{{- $own := dict
  "resources" .Values.resources
  "listen" ""
  "listen-tls" ":6443"
  "tls-cert-file" "/etc/spillway/tls/tls.crt"
  "tls-private-key-file" "/etc/spillway/tls/tls.key"
  "metrics-listen" ":9464"
  "metrics-tls" true
  "drain-period" (printf "%ds" (int .Values.drainSeconds)) -}}
{{- if .Values.clientCA.configMapName -}}
{{- $_ := set $own "client-ca-file" (printf "/etc/spillway/client-ca/%s" .Values.clientCA.key) -}}
{{- end -}}
{{- if .Values.audit.policy -}}
{{- $_ := set $own "audit-policy-file" "/etc/spillway/config/audit-policy.yaml" -}}
{{- $_ := set $own "audit-log-path" (ternary "/var/log/spillway/audit.log" "-" (not (empty .Values.audit.volume))) -}}
{{- $_ := set $own "audit-fail-closed" .Values.audit.failClosed -}}
{{- else if or .Values.audit.failClosed .Values.audit.volume -}}
{{- fail "audit.failClosed and audit.volume need audit.policy, which says what is put on record" -}}
{{- end -}}
{{- if .Values.tracing.endpoint -}}
{{- $_ := set $own "tracing-config-file" "/etc/spillway/config/tracing.yaml" -}}
{{- end -}}
{{- range $key := keys .Values.config | sortAlpha -}}
{{- if hasKey $own $key -}}
{{- fail (printf "config.%s: the chart sets this itself; use its own values instead (resources, tls, drainSeconds, clientCA, audit, tracing)" $key) -}}
{{- end -}}
{{- end -}}
{{- $config := .Values.config -}}
{{- if eq .Values.mode "loadShedding" -}}
{{- $config = merge (deepCopy .Values.config) .Values.loadShedding.limits -}}
{{- end -}}
{{- range $key, $value := $config -}}
{{- if and (kindIs "float64" $value) (eq (floor $value) $value) -}}
{{- $value = int64 $value -}}{{- /* or it would be 1.34217728e+08 */ -}}
{{- end -}}
{{- $_ := set $own $key $value -}}
{{- end -}}
{{- toYaml $own -}}
{{- end -}}

{{- define "spillway.auditPolicy" -}}
{{- toYaml (merge (dict "apiVersion" "audit.k8s.io/v1" "kind" "Policy") .Values.audit.policy) -}}
{{- end -}}

{{- define "spillway.tracing" -}}
apiVersion: apiserver.config.k8s.io/v1
kind: TracingConfiguration
endpoint: {{ .Values.tracing.endpoint }}
samplingRatePerMillion: {{ int64 .Values.tracing.samplingRatePerMillion }}
{{- end -}}
