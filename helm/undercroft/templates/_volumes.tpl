{{- /* Volumes that pods share, and what they ask of the pods that mount them. */ -}}

{{- define "undercroft.sidecarsClaim" -}}
{{- default (printf "%s-sidecars" (include "undercroft.fullname" .)) .Values.sidecars.existingClaim -}}
{{- end -}}

{{- define "undercroft.modelsClaim" -}}
{{- default (printf "%s-models" (include "undercroft.fullname" .)) .Values.models.existingClaim -}}
{{- end -}}

{{- /* How models reach a pod: "claim", "image" (an image volume) or "copy" (by an init container). */ -}}
{{- define "undercroft.modelsKind" -}}
{{- if eq .Values.models.source "volume" -}}
claim
{{- else if eq .Values.models.imageVolume "always" -}}
image
{{- else if eq .Values.models.imageVolume "never" -}}
copy
{{- else -}}
{{- semverCompare ">=1.35" (include "undercroft.kubeVersion" .) | ternary "image" "copy" -}}
{{- end -}}
{{- end -}}

{{- define "undercroft.modelsVolume" -}}
- name: models
{{- $kind := include "undercroft.modelsKind" . }}
{{- if eq $kind "claim" }}
  persistentVolumeClaim:
    claimName: {{ include "undercroft.modelsClaim" . }}
{{- else if eq $kind "image" }}
  image:
    reference: {{ include "undercroft.image" (dict "root" . "image" "models") }}
    pullPolicy: {{ .Values.image.pullPolicy }}
{{- else }}
  emptyDir:
    sizeLimit: {{ default (include "undercroft.profile" . | fromYaml).models.size .Values.models.size }}
{{- end }}
{{- end -}}

{{- /* Volumes on one node for all who mount them: (dict "root" . "sidecars" BOOL "models" BOOL) → labels. */ -}}
{{- define "undercroft.volumeLabels" -}}
{{- if and .sidecars (eq .root.Values.sidecars.accessMode "ReadWriteOnce") }}
undercroft/sidecars-volume: {{ include "undercroft.sidecarsClaim" .root }}
{{- end }}
{{- if and .models (eq (include "undercroft.modelsKind" .root) "claim") (eq .root.Values.models.accessMode "ReadWriteOnce") }}
undercroft/models-volume: {{ include "undercroft.modelsClaim" .root }}
{{- end }}
{{- end -}}

{{- /* Affinity of the values, and to the pods that mount the same volumes of one node: (dict … "affinity" DICT). */ -}}
{{- define "undercroft.affinity" -}}
{{- $affinity := deepCopy (default dict .affinity) -}}
{{- $terms := list -}}
{{- range $key, $value := include "undercroft.volumeLabels" . | fromYaml -}}
{{- $terms = append $terms (dict "topologyKey" "kubernetes.io/hostname" "labelSelector" (dict "matchLabels" (dict $key $value))) -}}
{{- end -}}
{{- if $terms -}}
{{- $pods := default dict $affinity.podAffinity -}}
{{- $required := concat (default list $pods.requiredDuringSchedulingIgnoredDuringExecution) $terms -}}
{{- $_ := set $pods "requiredDuringSchedulingIgnoredDuringExecution" $required -}}
{{- $_ := set $affinity "podAffinity" $pods -}}
{{- end -}}
{{- with $affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /*
Size of a claim: what is given, else what it has, else the profile's. Another profile must not resize a volume by the way:
many classes can't, and a StatefulSet refuses. (dict "root" . "claim" NAME "given" SIZE "profile" SIZE)
*/ -}}
{{- define "undercroft.claimSize" -}}
{{- $claim := lookup "v1" "PersistentVolumeClaim" .root.Release.Namespace .claim | default dict -}}
{{- coalesce .given (dig "spec" "resources" "requests" "storage" "" $claim) .profile -}}
{{- end -}}
