{{- /* What all pods have, hooks and tests too. */ -}}

{{- /* The one place where an image is named: (dict "root" . "image" KEY). */ -}}
{{- define "undercroft.image" -}}
{{- $image := index .root.Values.images .image -}}
{{- $name := printf "%s/%s" (trimSuffix "/" .root.Values.image.registry) $image.repository -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $name $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name (coalesce $image.tag .root.Values.image.tag .root.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{- /* Head of a pod's spec: (dict "root" . "account" NAME). */ -}}
{{- define "undercroft.podHead" -}}
serviceAccountName: {{ .account }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with include "undercroft.withoutNulls" .root.Values.podSecurityContext | fromYaml }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* Head of a container: (dict "root" . "name" NAME "image" KEY). */ -}}
{{- define "undercroft.containerHead" -}}
name: {{ .name }}
image: {{ include "undercroft.image" . }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
{{- with include "undercroft.withoutNulls" .root.Values.securityContext | fromYaml }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "undercroft.withoutNulls" -}}
{{- range $key, $value := . }}
{{- if not (kindIs "invalid" $value) }}
{{ dict $key $value | toYaml }}
{{- end }}
{{- end }}
{{- end -}}

{{- /* Values that place a pod, without its affinity. */ -}}
{{- define "undercroft.placement" -}}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}

{{- /* How health is asked for: "grpc" or "exec". */ -}}
{{- define "undercroft.probeMode" -}}
{{- if ne .Values.probes.mode "auto" -}}
{{- .Values.probes.mode -}}
{{- else -}}
{{- semverCompare ">=1.24" (include "undercroft.kubeVersion" .) | ternary "grpc" "exec" -}}
{{- end -}}
{{- end -}}

{{- /* A probe's handler: (dict "root" . "port" NUMBER). */ -}}
{{- define "undercroft.probe" -}}
{{- if eq (include "undercroft.probeMode" .root) "grpc" -}}
grpc:
  port: {{ .port }}
{{- else -}}
exec:
  command:
    {{- range .root.Values.probes.command }}
    - {{ . | quote }}
    {{- end }}
    - {{ printf "127.0.0.1:%v" .port | quote }}
{{- end -}}
{{- end -}}
