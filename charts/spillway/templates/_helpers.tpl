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

{{- /* Objects outside of namespaces carry the namespace of the release in their names, so that two releases of one name do not collide. */ -}}
{{- define "spillway.clusterName" -}}
{{- printf "%s:%s" .Release.Namespace (include "spillway.fullname" .) -}}
{{- end -}}

{{- define "spillway.selector" -}}
app.kubernetes.io/name: {{ include "spillway.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- /* The selector of the pod of `helm test`. It lacks the name, so that no Service selects that pod. */ -}}
{{- define "spillway.testSelector" -}}
app.kubernetes.io/component: test
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "spillway.labels" -}}
{{ include "spillway.selector" . }}
app.kubernetes.io/version: {{ include "spillway.labelValue" .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ include "spillway.labelValue" (printf "%s-%s" .Chart.Name .Chart.Version) | quote }}
{{- end -}}

{{- /* A version as the value of a label: without the plus sign of build metadata, which Flux adds, and not too long. */ -}}
{{- define "spillway.labelValue" -}}
{{- . | replace "+" "_" | trunc 63 | trimAll "-_." -}}
{{- end -}}

{{- /* The labels of the chart's own pods. None of these gets a sidecar, because the webhook could not start if its own pods needed it. */ -}}
{{- define "spillway.podLabels" -}}
{{ include "spillway.labels" . }}
{{ include "spillway.noSidecar" . }}
{{- with omit .Values.workload.podLabels "spillway/inject" }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "spillway.noSidecar" -}}
spillway/inject: disabled
{{- end -}}

{{- /* The user and groups that pods run as. If a value is null, the cluster chooses, as OpenShift's restricted SCC requires. */ -}}
{{- define "spillway.podSecurityContext" -}}
runAsNonRoot: true
{{- range $key := list "runAsUser" "runAsGroup" "fsGroup" }}
{{- with get $.Values.workload $key }}
{{ $key }}: {{ int64 . }}
{{- end }}
{{- end }}
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- /* Resources of the core group, and the groups of others that are often named: a Role needs the plural and the group of each. */ -}}
{{- define "spillway.knownGroups" -}}
"": [configmaps, endpoints, events, limitranges, namespaces, nodes, persistentvolumeclaims, persistentvolumes, pods, podtemplates, replicationcontrollers, resourcequotas, secrets, serviceaccounts, services]
admissionregistration.k8s.io: [mutatingwebhookconfigurations, validatingadmissionpolicies, validatingadmissionpolicybindings, validatingwebhookconfigurations]
apiextensions.k8s.io: [customresourcedefinitions]
apiregistration.k8s.io: [apiservices]
apps: [controllerrevisions, daemonsets, deployments, replicasets, statefulsets]
autoscaling: [horizontalpodautoscalers]
batch: [cronjobs, jobs]
certificates.k8s.io: [certificatesigningrequests, clustertrustbundles]
coordination.k8s.io: [leases]
discovery.k8s.io: [endpointslices]
flowcontrol.apiserver.k8s.io: [flowschemas, prioritylevelconfigurations]
networking.k8s.io: [ingressclasses, ingresses, ipaddresses, networkpolicies, servicecidrs]
node.k8s.io: [runtimeclasses]
policy: [poddisruptionbudgets]
rbac.authorization.k8s.io: [clusterrolebindings, clusterroles, rolebindings, roles]
resource.k8s.io: [deviceclasses, resourceclaims, resourceclaimtemplates, resourceslices]
scheduling.k8s.io: [priorityclasses]
storage.k8s.io: [csidrivers, csinodes, csistoragecapacities, storageclasses, volumeattachments]
{{- end -}}

{{- /* An item of `resources` as JSON, with its resource and group. A name for which no Role can be written is refused, though Spillway itself would accept the name. So are events, which Spillway cannot mirror. */ -}}
{{- define "spillway.resource" -}}
{{- $name := .name -}}
{{- $known := include "spillway.knownGroups" . | fromYaml -}}
{{- $parts := splitList "." $name -}}
{{- $resource := first $parts -}}
{{- $group := rest $parts -}}
{{- if and $group (regexMatch "^v[0-9]+((alpha|beta)[0-9]+)?$" (first $group)) -}}
{{- $group = rest $group -}}
{{- end -}}
{{- $group = join "." $group -}}
{{- if and (has $resource (list "event" "events")) (has $group (list "" "events.k8s.io")) -}}
{{- fail (printf "resources: %s cannot be mirrored, because the API server has no watch cache for events: leave it out, and its requests pass through" $name) -}}
{{- end -}}
{{- $plurals := get $known $group | default list -}}
{{- if and $plurals (not (has $resource $plurals)) -}}
  {{- range list (printf "%ss" $resource) (printf "%ses" $resource) (regexReplaceAll "y$" $resource "ies") -}}
    {{- if and (ne . $resource) (has . $plurals) -}}
      {{- fail (printf "resources: %s: name its plural: %s" $name (trimSuffix "." (printf "%s.%s" . $group))) -}}
    {{- end -}}
  {{- end -}}
  {{- if not $group -}}
    {{- range $in, $others := $known -}}
      {{- if has $resource $others -}}
        {{- fail (printf "resources: %s: name its group: %s.%s" $name $resource $in) -}}
      {{- end -}}
    {{- end -}}
    {{- fail (printf "resources: %s is no plural of the core group: name plural and group, as kubectl api-resources shows them, such as endpointslices.discovery.k8s.io" $name) -}}
  {{- end -}}
{{- end -}}
{{- dict "resource" $resource "group" $group | toJson -}}
{{- end -}}

{{- /* Refuses values that have no meaning. */ -}}
{{- define "spillway.checkValues" -}}
{{- if eq (toString .Values.enabled) "false" -}}
{{- fail "enabled: false is for the condition of a parent chart, which then leaves this chart out: have its requirement name that condition, or do not install this chart" -}}
{{- end -}}
{{- if ne .Values.mode "sidecar" -}}
{{- range without .Values.resources "*" -}}
{{- $_ := include "spillway.resource" (dict "name" .) -}}
{{- end -}}
{{- end -}}
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
{{- printf "%s:%s" .Values.image.repository (default (.Chart.AppVersion | replace "+" "_") .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "spillway.tlsSecret" -}}
{{- if eq .Values.tls.source "secret" -}}
{{- required "tls.secretName is needed when tls.source is secret" .Values.tls.secretName -}}
{{- else -}}
{{- printf "%s-tls" (include "spillway.fullname" .) -}}
{{- end -}}
{{- end -}}

{{- /* The names under which clients reach Spillway, in JSON. */ -}}
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

{{- /* The configuration file: the settings of the chart, and those that the user adds. */ -}}
{{- define "spillway.config" -}}
{{- $own := dict
  "resources" .Values.resources
  "listen" ""
  "listenTLS" ":6443"
  "tlsCertFile" "/etc/spillway/tls/tls.crt"
  "tlsPrivateKeyFile" "/etc/spillway/tls/tls.key"
  "metricsListen" ":9464"
  "metricsTLS" true
  "drainPeriod" (printf "%ds" (int .Values.drainSeconds)) -}}
{{- if .Values.clientCA.configMapName -}}
{{- $_ := set $own "clientCAFile" (printf "/etc/spillway/client-ca/%s" .Values.clientCA.key) -}}
{{- end -}}
{{- if .Values.audit.policy -}}
{{- $_ := set $own "auditPolicyFile" "/etc/spillway/config/audit-policy.yaml" -}}
{{- $_ := set $own "auditLogPath" (ternary "/var/log/spillway/audit.log" "-" (not (empty .Values.audit.volume))) -}}
{{- $_ := set $own "auditFailClosed" .Values.audit.failClosed -}}
{{- else if or .Values.audit.failClosed .Values.audit.volume -}}
{{- fail "audit.failClosed and audit.volume need audit.policy, which says what is put on record" -}}
{{- end -}}
{{- if .Values.tracing.endpoint -}}
{{- $_ := set $own "tracingConfigFile" "/etc/spillway/config/tracing.yaml" -}}
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
apiVersion: config.spillway.example.com/v1alpha1
kind: SpillwayConfiguration
{{ toYaml $own }}
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
