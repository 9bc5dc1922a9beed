{{- /* What is doubtful in the values, in JSON: the release works, but perhaps not as meant. */ -}}
{{- define "spillway.warnings" -}}
{{- $all := list -}}
{{- $proxy := ne .Values.mode "sidecar" -}}
{{- $registry := get (include "spillway.imageParts" . | fromJson) "registry" -}}
{{- if not $registry -}}
{{- $all = append $all (printf "The image %s names no registry, so nodes pull it from their default registry. Set image.registry." (include "spillway.image" .)) -}}
{{- else if regexMatch "[.]example([.][a-z]+)?(:[0-9]+)?(/|$)" $registry -}}
{{- $all = append $all (printf "Nodes cannot pull the image %s. The registry %s does not exist. Set image.registry to one that has the image, also if you set image.repository." (include "spillway.image" .) $registry) -}}
{{- end -}}
{{- if and (eq .Values.tls.source "generated") .Values.tls.generated.withoutCluster -}}
{{- $all = append $all "Each render without a cluster makes a new CA (tls.generated.withoutCluster), and clients have to trust the new one. Use tls.source=certManager or tls.source=secret, with which all renders are equal." -}}
{{- end -}}
{{- if and (eq .Values.kind "Deployment") (not .Values.autoscaling.enabled) (lt (int (include "spillway.replicaCount" .)) 2) -}}
{{- $all = append $all (printf "There are fewer than two replicas. While the pod is replaced, %s." ($proxy | ternary "clients are disconnected" "pods are created without a sidecar, or not at all (webhook.failurePolicy)")) -}}
{{- end -}}
{{- if not (get (default dict (get (include "spillway.resources" . | fromYaml) "limits")) "memory") -}}
{{- $all = append $all "Without a memory limit (resources.limits.memory), the memory of the node is the only limit of the pods." -}}
{{- end -}}
{{- if and .Values.podDisruptionBudget.enabled (eq .Values.kind "Deployment") (regexMatch "^0%?$" (toString .Values.podDisruptionBudget.maxUnavailable)) -}}
{{- $all = append $all "podDisruptionBudget.maxUnavailable=0 keeps nodes with these pods from being drained." -}}
{{- end -}}
{{- if not .Values.rbac.create -}}
{{- $all = append $all (printf "The chart creates no roles (rbac.create). Grant the service account %s what the chart's README lists under \"Rights\"." (include "spillway.serviceAccount" .)) -}}
{{- end -}}
{{- if $proxy -}}
  {{- /* With a cluster, Capabilities are those of the API server. Otherwise they are built into Helm, and lack the group of APIServices. */ -}}
  {{- if .Capabilities.APIVersions.Has "apiregistration.k8s.io/v1" -}}
  {{- $served := dict -}}
  {{- range .Capabilities.APIVersions -}}
    {{- $_ := set $served (splitList "/" . | first) true -}}
  {{- end -}}
  {{- range without (include "spillway.mirrored" . | fromJsonArray) "*" -}}
    {{- $group := get (include "spillway.resource" (dict "name" . "list" "mirror") | fromJson) "group" -}}
    {{- if and $group (not (hasKey $served $group)) -}}
    {{- $all = append $all (printf "The API server does not serve the group %s (yet). Until it does, requests for %s pass through. Is the name correct?" $group .) -}}
    {{- end -}}
  {{- end -}}
  {{- end -}}
  {{- if and (eq .Values.kind "Deployment") (eq .Values.service.internalTrafficPolicy "Local") -}}
  {{- $all = append $all "With service.internalTrafficPolicy=Local, clients on nodes without a pod of this Deployment reach none. Set kind=DaemonSet." -}}
  {{- end -}}
  {{- if and (eq .Values.kind "DaemonSet") (eq .Values.service.internalTrafficPolicy "Cluster") -}}
  {{- $all = append $all "Clients connect to pods on any node. Set service.internalTrafficPolicy=Local to have them connect to the pod on their own node." -}}
  {{- end -}}
  {{- if and .Values.monitoring.prometheusRule.enabled (not .Values.monitoring.serviceMonitor.enabled) -}}
  {{- $all = append $all (printf "The alerts read metrics of the job %s-metrics in this namespace. Set monitoring.serviceMonitor.enabled, or give your scrape configuration that job name." (include "spillway.fullname" .)) -}}
  {{- end -}}
{{- end -}}
{{- toJson $all -}}
{{- end -}}
