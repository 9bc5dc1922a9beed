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
app.kubernetes.io/name: {{ include "spillway.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- /* The selector, as kubectl's --selector takes it. */ -}}
{{- define "spillway.selectorFlag" -}}
app.kubernetes.io/name={{ include "spillway.name" . }},app.kubernetes.io/instance={{ .Release.Name }}
{{- end -}}

{{- /* The name of the pod of `helm test` in its labels, which no Service selects. */ -}}
{{- define "spillway.testName" -}}
{{- printf "%s-test" (include "spillway.name" . | trunc 58 | trimSuffix "-") -}}
{{- end -}}

{{- /* The selector of the pod of `helm test`. */ -}}
{{- define "spillway.testSelector" -}}
app.kubernetes.io/name: {{ include "spillway.testName" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- /* What selectors find takes precedence over commonLabels, and these over the other labels. */ -}}
{{- define "spillway.labelsOf" -}}
{{- $selected := dict
  "app.kubernetes.io/name" .name
  "app.kubernetes.io/instance" .root.Release.Name
  "app.kubernetes.io/component" .component -}}
{{- $other := dict
  "app.kubernetes.io/part-of" (include "spillway.name" .root)
  "app.kubernetes.io/version" (include "spillway.labelValue" .root.Chart.AppVersion)
  "app.kubernetes.io/managed-by" .root.Release.Service
  "helm.sh/chart" (include "spillway.labelValue" (printf "%s-%s" .root.Chart.Name .root.Chart.Version)) -}}
{{- toYaml (merge $selected (default dict .first) .root.Values.commonLabels $other) -}}
{{- end -}}

{{- define "spillway.component" -}}
{{- eq .Values.mode "sidecar" | ternary "webhook" "proxy" -}}
{{- end -}}

{{- define "spillway.labels" -}}
{{- include "spillway.labelsOf" (dict "root" . "name" (include "spillway.name" .) "component" (include "spillway.component" .)) -}}
{{- end -}}

{{- define "spillway.metricsLabels" -}}
{{- include "spillway.labelsOf" (dict "root" . "name" (include "spillway.name" .) "component" "metrics") -}}
{{- end -}}

{{- /* A version as the value of a label: without the plus sign of build metadata, which Flux adds, and not too long. */ -}}
{{- define "spillway.labelValue" -}}
{{- . | replace "+" "_" | trunc 63 | trimAll "-_." -}}
{{- end -}}

{{- /* The labels of the chart's own pods. None of these gets a sidecar, because the webhook could not start if its own pods needed it. */ -}}
{{- define "spillway.podLabels" -}}
{{- include "spillway.labelsOf" (dict "root" . "name" (include "spillway.name" .) "component" (include "spillway.component" .)
  "first" (merge (include "spillway.noSidecar" . | fromYaml) .Values.podLabels)) -}}
{{- end -}}

{{- define "spillway.testLabels" -}}
{{- include "spillway.labelsOf" (dict "root" . "name" (include "spillway.testName" .) "component" "test"
  "first" (include "spillway.noSidecar" . | fromYaml)) -}}
{{- end -}}

{{- define "spillway.noSidecar" -}}
spillway.example.com/inject: disabled
{{- end -}}

{{- /* A map without the keys whose value is null, which leave a value to the cluster. */ -}}
{{- define "spillway.withoutNulls" -}}
{{- $kept := dict -}}
{{- range $key, $value := . -}}
{{- if kindIs "float64" $value -}}
{{- $value = int64 $value -}}
{{- end -}}
{{- if not (kindIs "invalid" $value) -}}
{{- $_ := set $kept $key $value -}}
{{- end -}}
{{- end -}}
{{- toYaml $kept -}}
{{- end -}}

{{- /* What is mirrored, in JSON. */ -}}
{{- define "spillway.mirrored" -}}
{{- concat .Values.mirror.resources .Values.mirror.extraResources | uniq | toJson -}}
{{- end -}}

{{- /* The container's resources in this mode. */ -}}
{{- define "spillway.resources" -}}
{{- $of := dict "cluster" .Values.resources "loadShedding" .Values.loadShedding.resources "sidecar" .Values.webhook.resources -}}
{{- toYaml (get $of .Values.mode) -}}
{{- end -}}

{{- define "spillway.replicaCount" -}}
{{- eq .Values.mode "loadShedding" | ternary .Values.loadShedding.replicaCount .Values.replicaCount -}}
{{- end -}}

{{- /* The replicas of the manifest. With the autoscaler, these are none, except while they are Helm's: a manifest without them would then
remove the field, and the API server would set it to 1 until the autoscaler acts. Server-side apply notes whose field it is. A release that is
applied in another way may remove the field at each upgrade. Without a cluster, there is no Deployment to look at. */ -}}
{{- define "spillway.replicas" -}}
{{- if not .Values.autoscaling.enabled -}}
{{- include "spillway.replicaCount" . -}}
{{- else -}}
{{- with lookup "apps/v1" "Deployment" .Release.Namespace (include "spillway.fullname" .) -}}
  {{- $applied := false -}}
  {{- $owned := false -}}
  {{- range (default list .metadata.managedFields) -}}
    {{- $spec := get (default dict .fieldsV1) "f:spec" | default dict -}}
    {{- if eq .operation "Apply" -}}
      {{- $applied = or $applied (hasKey $spec "f:template") -}}
      {{- $owned = or $owned (hasKey $spec "f:replicas") -}}
    {{- end -}}
  {{- end -}}
  {{- if or $owned (not $applied) -}}
    {{- max (int64 .spec.replicas) (int64 $.Values.autoscaling.minReplicas) -}}
  {{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Not empty if Helm reads a cluster. Helm itself lists the Secrets of the namespace, which hold its releases. Other kinds would need rights
that the installer may not have. A list is not empty even if it has no items, or the namespace does not exist yet. */ -}}
{{- define "spillway.hasCluster" -}}
{{- if lookup "v1" "Secret" .Release.Namespace "" -}}true{{- end -}}
{{- end -}}

{{- /* The constraints of the values. One without a labelSelector applies to the pods of one revision. */ -}}
{{- define "spillway.topologySpreadConstraints" -}}
{{- $all := list -}}
{{- $ours := dict "labelSelector" (dict "matchLabels" (include "spillway.selector" . | fromYaml)) "matchLabelKeys" (list "pod-template-hash") -}}
{{- range .Values.topologySpreadConstraints -}}
{{- $all = append $all (hasKey . "labelSelector" | ternary . (merge (deepCopy .) $ours)) -}}
{{- end -}}
{{- toYaml $all -}}
{{- end -}}

{{- define "spillway.imagePullSecrets" -}}
{{- $all := list -}}
{{- range concat (default list (get (default dict .Values.global) "imagePullSecrets")) .Values.imagePullSecrets -}}
{{- $all = append $all (kindIs "string" . | ternary (dict "name" .) .) -}}
{{- end -}}
{{- with $all | uniq -}}
{{- toYaml . -}}
{{- end -}}
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
storage.k8s.io: [csidrivers, csinodes, csistoragecapacities, storageclasses, volumeattachments, volumeattributesclasses]
{{- end -}}

{{- /* Short names that kubectl accepts, and the plural and group of each. */ -}}
{{- define "spillway.shortNames" -}}
cj: cronjobs.batch
cm: configmaps
crd: customresourcedefinitions.apiextensions.k8s.io
crds: customresourcedefinitions.apiextensions.k8s.io
csr: certificatesigningrequests.certificates.k8s.io
deploy: deployments.apps
ds: daemonsets.apps
ep: endpoints
hpa: horizontalpodautoscalers.autoscaling
ing: ingresses.networking.k8s.io
ip: ipaddresses.networking.k8s.io
limits: limitranges
netpol: networkpolicies.networking.k8s.io
"no": nodes
ns: namespaces
pc: priorityclasses.scheduling.k8s.io
pdb: poddisruptionbudgets.policy
po: pods
pv: persistentvolumes
pvc: persistentvolumeclaims
quota: resourcequotas
rc: replicationcontrollers
rs: replicasets.apps
sa: serviceaccounts
sc: storageclasses.storage.k8s.io
sts: statefulsets.apps
svc: services
vac: volumeattributesclasses.storage.k8s.io
{{- end -}}

{{- /* An expression for a plural and for names that differ from it only in one letter, or in two neighbouring letters if the plural is long. */ -}}
{{- define "spillway.misspelt" -}}
{{- $length := len . -}}
{{- $width := lt $length 8 | ternary 1 2 -}}
{{- $all := list -}}
{{- range $i := until (add1 (sub $length $width) | int) -}}
{{- $all = append $all (printf "%s[a-z]{0,%d}%s" (substr 0 $i $) (add1 $width) (substr (add $i $width | int) $length $)) -}}
{{- end -}}
{{- printf "^(%s)$" (join "|" $all) -}}
{{- end -}}

{{- /* An item of mirror.resources or mirror.extraResources as JSON, with its resource and group. A name for which no Role can be written is refused, though Spillway itself would accept the name. So are events, which Spillway cannot mirror. */ -}}
{{- define "spillway.resource" -}}
{{- $name := .name -}}
{{- $list := .list -}}
{{- $known := include "spillway.knownGroups" . | fromYaml -}}
{{- $parts := splitList "." $name -}}
{{- $resource := first $parts -}}
{{- $group := rest $parts -}}
{{- if and $group (regexMatch "^v[0-9]+((alpha|beta)[0-9]+)?$" (first $group)) -}}
{{- $group = rest $group -}}
{{- end -}}
{{- $group = join "." $group -}}
{{- if and (has $resource (list "ev" "event" "events")) (has $group (list "" "events.k8s.io")) -}}
{{- fail (printf "%s: %s cannot be mirrored, because the API server has no watch cache for events: leave it out, and its requests pass through" $list $name) -}}
{{- end -}}
{{- $plurals := get $known $group | default list -}}
{{- if and $plurals (not (has $resource $plurals)) -}}
  {{- $in := eq $group "" | ternary $known (dict $group $plurals) -}}
  {{- $short := get (include "spillway.shortNames" . | fromYaml) $resource | default "" -}}
  {{- if and $short (or (not $group) (eq (splitList "." $short | rest | join ".") $group)) -}}
    {{- fail (printf "%s: %s: name its plural: %s" $list $name $short) -}}
  {{- end -}}
  {{- $near := "" -}}
  {{- range $of, $others := $in -}}
    {{- if has $resource $others -}}
      {{- fail (printf "%s: %s: name its group: %s.%s" $list $name $resource $of) -}}
    {{- end -}}
    {{- range $plural := $others -}}
      {{- $full := trimSuffix "." (printf "%s.%s" $plural $of) -}}
      {{- if has $plural (list (printf "%ss" $resource) (printf "%ses" $resource) (regexReplaceAll "y$" $resource "ies")) -}}
        {{- fail (printf "%s: %s: name its plural: %s" $list $name $full) -}}
      {{- end -}}
      {{- if regexMatch (include "spillway.misspelt" $plural) $resource -}}
        {{- $near = default $full $near -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
  {{- if $near -}}
    {{- fail (printf "%s: %s: did you mean %s?" $list $name $near) -}}
  {{- end -}}
  {{- if not $group -}}
    {{- fail (printf "%s: %s is no plural of the core group: name plural and group, as kubectl api-resources shows them, such as endpointslices.discovery.k8s.io" $list $name) -}}
  {{- end -}}
{{- end -}}
{{- dict "resource" $resource "group" $group | toJson -}}
{{- end -}}

{{- define "spillway.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "spillway.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- /* The registry and repository of the image in JSON. A repository may name its registry, as an image's name does: its first part then is
localhost, or has a dot or a colon. */ -}}
{{- define "spillway.imageParts" -}}
{{- $registry := .Values.image.registry -}}
{{- $repository := .Values.image.repository -}}
{{- if regexMatch "^(localhost|[^/]*[.:][^/]*)/" $repository -}}
{{- $registry = splitList "/" $repository | first -}}
{{- $repository = splitList "/" $repository | rest | join "/" -}}
{{- end -}}
{{- with get (default dict .Values.global) "imageRegistry" -}}
{{- $registry = . -}}
{{- end -}}
{{- dict "registry" $registry "repository" $repository | toJson -}}
{{- end -}}

{{- define "spillway.image" -}}
{{- $parts := include "spillway.imageParts" . | fromJson -}}
{{- with $parts.registry -}}
{{- printf "%s/" . -}}
{{- end -}}
{{- $parts.repository -}}
{{- if .Values.image.digest -}}
{{- printf "@%s" .Values.image.digest -}}
{{- else -}}
{{- printf ":%s" (default (.Chart.AppVersion | replace "+" "_") .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "spillway.tlsSecret" -}}
{{- if eq .Values.tls.source "secret" -}}
{{- .Values.tls.secretName -}}
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
  "resources" (include "spillway.mirrored" . | fromJsonArray)
  "listen" ""
  "listenTLS" ":6443"
  "tlsCertFile" "/etc/spillway/tls/tls.crt"
  "tlsPrivateKeyFile" "/etc/spillway/tls/tls.key"
  "metricsListen" ":9464"
  "drainPeriod" (printf "%ds" (int .Values.drainSeconds)) -}}
{{- if .Values.clientCA.configMapName -}}
{{- $_ := set $own "clientCAFile" (printf "/etc/spillway/client-ca/%s" .Values.clientCA.key) -}}
{{- end -}}
{{- if .Values.audit.policy -}}
{{- $_ := set $own "auditPolicyFile" "/etc/spillway/config/audit-policy.yaml" -}}
{{- $_ := set $own "auditLogPath" (ternary "/var/log/spillway/audit.log" "-" (not (empty .Values.audit.volume))) -}}
{{- $_ := set $own "auditFailClosed" .Values.audit.failClosed -}}
{{- end -}}
{{- if .Values.tracing.endpoint -}}
{{- $_ := set $own "tracingConfigFile" "/etc/spillway/config/tracing.yaml" -}}
{{- end -}}
{{- range $key := keys .Values.config | sortAlpha -}}
{{- if hasKey $own $key -}}
{{- fail (printf "config.%s: the chart sets this itself; use its own values instead (mirror, tls, drainSeconds, clientCA, audit, tracing)" $key) -}}
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
{{- if and (kindIs "string" $value) (regexMatch "^[0-9]+[.][0-9]+$" $value) -}}
{{- $value = float64 $value -}}{{- /* --set makes a string of a fraction */ -}}
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
