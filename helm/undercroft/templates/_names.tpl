{{- /* Names and labels. */ -}}

{{- define "undercroft.name" -}}
{{- default .Chart.Name .Values.nameOverride -}}
{{- end -}}

{{- /* 40 characters, so that the longest suffix fits into a DNS label; a longer name ends in what tells it from others. */ -}}
{{- define "undercroft.fullname" -}}
{{- $name := include "undercroft.name" . -}}
{{- $full := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) -}}
{{- $full = default $full .Values.fullnameOverride -}}
{{- if gt (len $full) 40 -}}
{{- printf "%s-%s" (trunc 31 $full | trimSuffix "-") (sha256sum $full | trunc 8) -}}
{{- else -}}
{{- $full -}}
{{- end -}}
{{- end -}}

{{- /* What selects pods: (dict "root" . "component" NAME). It never changes between releases. */ -}}
{{- define "undercroft.selectorLabels" -}}
app.kubernetes.io/name: {{ include "undercroft.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "undercroft.labels" -}}
{{- with .root.Values.commonLabels }}{{ toYaml . }}
{{ end -}}
{{ include "undercroft.selectorLabels" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: undercroft
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{- /* metadata of an object: (dict "root" . "component" NAME "name" NAME "labels" DICT "annotations" DICT). */ -}}
{{- define "undercroft.metadata" -}}
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "undercroft.labels" . | nindent 4 }}
    {{- with .labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with merge (dict) (default dict .annotations) .root.Values.commonAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{- define "undercroft.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "undercroft.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "undercroft.components" -}}
{{ .Files.Get "files/components.yaml" }}
{{- end -}}

{{- define "undercroft.profile" -}}
{{ .Files.Get (printf "files/profiles/%s.yaml" .Values.profile) }}
{{- end -}}

{{- /* Version of the cluster, without what vendors add to it. */ -}}
{{- define "undercroft.kubeVersion" -}}
{{- regexFind "[0-9]+\\.[0-9]+" .Capabilities.KubeVersion.Version -}}
{{- end -}}

{{- /* A setting as the environment has it; numbers come out of YAML as floats. */ -}}
{{- define "undercroft.scalar" -}}
{{- if and (eq (kindOf .) "float64") (eq (floor .) .) -}}{{ int64 . }}{{- else -}}{{ . }}{{- end -}}
{{- end -}}
