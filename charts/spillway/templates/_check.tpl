{{- /* "true" if the chart renders anything. Each template begins with it, so that values which lead to a broken release are refused first.
With --reuse-values, a release of an earlier chart has no value `enabled`. */ -}}
{{- define "spillway.enabled" -}}
{{- if ne (toString (get .Values "enabled")) "false" -}}
{{- include "spillway.checkNames" . -}}
{{- include "spillway.checkValues" . -}}
{{- if eq .Values.mode "sidecar" -}}
{{- include "spillway.checkSidecar" . -}}
{{- else -}}
{{- include "spillway.checkProxy" . -}}
{{- end -}}
true
{{- end -}}
{{- end -}}

{{- /* Former names of values, and what they are now. The schema lets them through, so that this says so. */ -}}
{{- define "spillway.formerNames" -}}
resources: mirror.resources
workload.kind: kind
workload.replicas: replicaCount
workload.annotations: annotations
workload.podAnnotations: podAnnotations
workload.podLabels: podLabels
workload.runAsUser: podSecurityContext.runAsUser
workload.runAsGroup: podSecurityContext.runAsGroup
workload.fsGroup: podSecurityContext.fsGroup
workload.priorityClassName: priorityClassName
workload.nodeSelector: nodeSelector
workload.tolerations: tolerations
workload.affinity: affinity
workload.topologySpread: topologySpreadConstraints
workload.resources: resources
workload.extraEnv: extraEnv
workload.extraVolumes: extraVolumes
workload.extraVolumeMounts: extraVolumeMounts
shed: loadShedding
loadShedding.replicas: loadShedding.replicaCount
sidecar.resources: sidecar.mirror.resources
sidecar.flags: sidecar.extraArgs
sidecar.cpuRequest: sidecar.resources.requests.cpu
sidecar.cpuLimit: sidecar.resources.limits.cpu
sidecar.memoryRequest: sidecar.resources.requests.memory
sidecar.memoryLimit: sidecar.resources.limits.memory
audit.required: audit.failClosed
webhook.clientNames: webhook.clientAllowedNames
{{- end -}}

{{- /* Former names of flags, and the keys of the settings that they are now. The names of today are in _settings.tpl. */ -}}
{{- define "spillway.formerSettings" -}}
audit-required: [auditFailClosed]
backfill-watches: [maxBackfillWatches]
debug: [profiling, allowCoreDumps]
encoded-bytes: [encodingCacheBytes]
http2: [disableHTTP2Serving]
max-large-head-bytes: [maxLargeHeaderBytes]
metrics-tls: []
plain-identity: [listenIdentity]
plain-self-connect: [listenAllowConnect]
reauth-sweep: [reauthorizationInterval]
semantics: [emulatedVersion]
unready-when-away: [readyzUpstreamTimeout]
watch-rights: [watchRBAC]
writers: []
{{- end -}}

{{- /* A key of config or loadShedding.limits that the schema lets through, because it is or was the name of a flag, or looks like one. In JSON:
what it is now, or what may be meant. Only a setting that exists is named. */ -}}
{{- define "spillway.oldKey" -}}
{{- $value := .value -}}
{{- $key := .key -}}
{{- $limits := include "spillway.limits" . | fromYamlArray -}}
{{- $flags := include "spillway.flags" . | fromYaml -}}
{{- $former := include "spillway.formerSettings" . | fromYaml -}}
{{- $now := list -}}
{{- $near := "" -}}
{{- if hasKey $flags $key -}}
  {{- $now = list (get $flags $key) -}}
{{- else if hasKey $former $key -}}
  {{- $now = get $former $key -}}
{{- else -}}
  {{- range $flag, $name := $flags -}}
    {{- if regexMatch (include "spillway.misspelt" $flag) $key -}}
      {{- $near = $name -}}
    {{- end -}}
  {{- end -}}
  {{- with $near -}}
    {{- $now = list . -}}
  {{- end -}}
{{- end -}}
{{- $names := list -}}
{{- range $now -}}
  {{- $names = append $names (printf "%s.%s" (has . $limits | ternary $value "config") .) -}}
{{- end -}}
{{- $names = join " and " $names -}}
{{- if $near -}}
  {{- dict "unknown" (printf "%s.%s (did you mean %s?)" $value $key $names) | toJson -}}
{{- else if $names -}}
  {{- dict "former" (printf "%s.%s is now %s" $value $key $names) | toJson -}}
{{- else if hasKey $former $key -}}
  {{- dict "former" (printf "%s.%s no longer exists" $value $key) | toJson -}}
{{- else -}}
  {{- dict "unknown" (printf "%s.%s" $value $key) | toJson -}}
{{- end -}}
{{- end -}}

{{- /* resources and sidecar.resources are names of today too, but as mappings. */ -}}
{{- define "spillway.checkNames" -}}
{{- $found := list -}}
{{- $unknown := list -}}
{{- range $former, $name := include "spillway.formerNames" . | fromYaml -}}
  {{- $in := $.Values -}}
  {{- range splitList "." $former -}}
    {{- $in = kindIs "map" $in | ternary (get (kindIs "map" $in | ternary $in dict) .) "" -}}
  {{- end -}}
  {{- $isNew := and (has $former (list "resources" "sidecar.resources")) (kindIs "map" $in) -}}
  {{- if not (or $isNew (kindIs "invalid" $in) (eq (toString $in) "")) -}}
    {{- $found = append $found (printf "%s is now %s" $former $name) -}}
  {{- end -}}
{{- end -}}
{{- range $value, $keys := dict "config" .Values.config "loadShedding.limits" (get (default dict .Values.loadShedding) "limits") -}}
  {{- range $key := keys (default dict $keys) | sortAlpha -}}
    {{- if or (contains "-" $key) (hasKey (include "spillway.formerSettings" $ | fromYaml) $key) -}}
      {{- $old := include "spillway.oldKey" (dict "value" $value "key" $key) | fromJson -}}
      {{- $found = concat $found (list (get $old "former")) | compact -}}
      {{- $unknown = concat $unknown (list (get $old "unknown")) | compact -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- if and (not $found) (hasKey .Values "workload") -}}
{{- $found = list "workload no longer exists" -}}
{{- end -}}
{{- $all := list -}}
{{- with $found -}}
{{- $all = append $all (printf "values with former names: %s. The section \"Values with former names\" of docs/operations.md lists all" (join "; " .)) -}}
{{- end -}}
{{- with $unknown -}}
{{- $all = append $all (printf "no such settings: %s. `spillway config print` lists all" (join "; " .)) -}}
{{- end -}}
{{- with $all -}}
{{- fail (join "; and " .) -}}
{{- end -}}
{{- end -}}

{{- define "spillway.checkValues" -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" (include "spillway.fullname" .)) -}}
{{- fail (printf "%s cannot be the name of a Service, which begins with a letter and has letters, digits and hyphens: set fullnameOverride" (include "spillway.fullname" .)) -}}
{{- end -}}
{{- if not (or .Values.serviceAccount.create .Values.serviceAccount.name) -}}
{{- fail "serviceAccount.name is needed when serviceAccount.create is false" -}}
{{- end -}}
{{- if and (eq .Values.tls.source "secret") (not .Values.tls.secretName) -}}
{{- fail "tls.secretName is needed when tls.source is secret" -}}
{{- end -}}
{{- if and (eq .Values.tls.source "certManager") (not (get .Values.tls.certManager.issuerRef "name")) -}}
{{- fail "tls.certManager.issuerRef is needed when tls.source is certManager: kind and name of an Issuer or ClusterIssuer" -}}
{{- end -}}
{{- range $value, $readers := dict "metricsReaders" .Values.rbac.metricsReaders "statusReaders" .Values.rbac.statusReaders -}}
  {{- range $i, $reader := $readers -}}
    {{- if and (eq $reader.kind "ServiceAccount") (not (get $reader "namespace")) -}}
      {{- fail (printf "rbac.%s[%d].namespace is needed: the namespace of the ServiceAccount %s" $value $i $reader.name) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- define "spillway.checkSidecar" -}}
{{- range $value, $set := dict
  "autoscaling.enabled" .Values.autoscaling.enabled
  "flowControl.enabled" .Values.flowControl.enabled
  "monitoring.serviceMonitor.enabled" .Values.monitoring.serviceMonitor.enabled
  "monitoring.prometheusRule.enabled" .Values.monitoring.prometheusRule.enabled
  "monitoring.dashboard.enabled" .Values.monitoring.dashboard.enabled
  "mirror.extraResources" .Values.mirror.extraResources
  "audit.policy" .Values.audit.policy
  "tracing.endpoint" .Values.tracing.endpoint
  "rbac.readEverything" .Values.rbac.readEverything
  "rbac.metricsReaders" .Values.rbac.metricsReaders
  "rbac.statusReaders" .Values.rbac.statusReaders
  "config" .Values.config -}}
  {{- if $set -}}
    {{- fail (printf "%s has no meaning when mode is sidecar: the only proxies are in pods, and the values below sidecar describe them" $value) -}}
  {{- end -}}
{{- end -}}
{{- if ne .Values.kind "Deployment" -}}
{{- fail "kind must be Deployment when mode is sidecar" -}}
{{- end -}}
{{- if and (eq .Values.webhook.failurePolicy "Fail") (not (int .Values.replicaCount)) -}}
{{- fail "replicaCount=0 with webhook.failurePolicy=Fail: no pod could be created. Raise replicaCount, or set failurePolicy=Ignore" -}}
{{- end -}}
{{- if eq (int .Values.sidecar.port) (int .Values.sidecar.healthPort) -}}
{{- fail "sidecar.port and sidecar.healthPort must differ" -}}
{{- end -}}
{{- if and (eq .Values.tls.source "secret") (not (contains "-----BEGIN CERTIFICATE-----" .Values.webhook.caBundle)) -}}
{{- fail "webhook.caBundle is needed when mode is sidecar and tls.source is secret: the CA of the webhook's certificate, in PEM and not in base64. Use --set-file" -}}
{{- end -}}
{{- end -}}

{{- define "spillway.checkProxy" -}}
{{- $mirrored := include "spillway.mirrored" . | fromJsonArray -}}
{{- if not $mirrored -}}
{{- fail "mirror.resources and mirror.extraResources are empty: name what to mirror" -}}
{{- end -}}
{{- if and (has "*" $mirrored) .Values.rbac.create (not .Values.rbac.readEverything) -}}
{{- fail "mirror.resources: \"*\" needs rbac.readEverything=true, because Spillway must then be allowed to read every resource, Secrets included. Or name the resources" -}}
{{- end -}}
{{- range $list := list "resources" "extraResources" -}}
  {{- range without (get $.Values.mirror $list) "*" -}}
    {{- $_ := include "spillway.resource" (dict "name" . "list" (printf "mirror.%s" $list)) -}}
  {{- end -}}
{{- end -}}
{{- if .Values.autoscaling.enabled -}}
  {{- if ne .Values.kind "Deployment" -}}
    {{- fail "autoscaling.enabled needs kind=Deployment: a DaemonSet has as many pods as there are nodes" -}}
  {{- end -}}
  {{- if gt (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas) -}}
    {{- fail "autoscaling.minReplicas is above autoscaling.maxReplicas" -}}
  {{- end -}}
  {{- $requests := default dict (get (include "spillway.resources" . | fromYaml) "requests") -}}
  {{- if not (get $requests "cpu") -}}
    {{- fail (printf "autoscaling.enabled needs %sresources.requests.cpu: the autoscaler compares the CPU time of pods with it" (eq .Values.mode "loadShedding" | ternary "loadShedding." "")) -}}
  {{- end -}}
  {{- range $i, $container := .Values.extraContainers -}}
    {{- if not (dig "resources" "requests" "cpu" "" $container) -}}
      {{- fail (printf "autoscaling.enabled needs extraContainers[%d].resources.requests.cpu: the autoscaler compares the CPU time of pods with the requests of all containers" $i) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- if and .Values.monitoring.serviceMonitor.enabled .Values.rbac.create (not .Values.rbac.metricsReaders) -}}
{{- fail "monitoring.serviceMonitor.enabled needs rbac.metricsReaders, or Prometheus gets 403. Name its account: --set 'rbac.metricsReaders[0].kind=ServiceAccount,rbac.metricsReaders[0].name=NAME,rbac.metricsReaders[0].namespace=NAMESPACE'" -}}
{{- end -}}
{{- if and (not .Values.audit.policy) (or .Values.audit.failClosed .Values.audit.volume) -}}
{{- fail "audit.failClosed and audit.volume need audit.policy, which says what is recorded" -}}
{{- end -}}
{{- range $value, $url := dict "metricsReaders" "/metrics" "statusReaders" "/statusz" -}}
  {{- if and (get $.Values.rbac $value) (not $.Values.rbac.create) -}}
    {{- fail (printf "rbac.%s has no meaning when rbac.create is false: allow these readers to get the URL %s yourself (nonResourceURLs of a ClusterRole)" $value $url) -}}
  {{- end -}}
{{- end -}}
{{- range .Values.extraArgs -}}
  {{- $flag := splitList "=" . | first | trimPrefix "--" -}}
  {{- if has $flag (list "config" "kubeconfig" "resources" "listen" "listen-tls" "tls-cert-file" "tls-private-key-file" "metrics-listen" "drain-period") -}}
    {{- fail (printf "extraArgs: the chart sets --%s itself; use its own values instead (mirror, tls, drainSeconds)" $flag) -}}
  {{- end -}}
{{- end -}}
{{- range $value, $set := dict "webhook.caBundle" .Values.webhook.caBundle "webhook.clientAllowedNames" .Values.webhook.clientAllowedNames -}}
  {{- if $set -}}
    {{- fail (printf "%s has no meaning unless mode is sidecar" $value) -}}
  {{- end -}}
{{- end -}}
{{- end -}}
