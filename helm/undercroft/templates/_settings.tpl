{{- /* Settings of a service, and the files that they name: the context of undercroft.service. */ -}}

{{- define "undercroft.config" -}}
{{- $values := .root.Values -}}
{{- $full := include "undercroft.fullname" .root -}}
{{- $components := include "undercroft.components" .root | fromYaml -}}
{{- $settings := dict
  "LISTEN" (printf "[::]:%v" .is.port)
  "METRICS_LISTEN" (printf "[::]:%v" .is.metricsPort)
  "LOG_LEVEL" $values.logLevel
  "DRAIN_S" (int $values.drainSeconds)
  "SHUTDOWN_GRACE_S" (int $values.shutdownGraceSeconds) -}}
{{- /* One short name is found at the first look-up, in the namespace, and never asked of a DNS outside. */ -}}
{{- range .is.calls -}}
{{- $_ := set $settings (printf "%s_TARGET" (upper .)) (printf "dns:///%s-%s-headless:%v" $full . (index $components .).port) -}}
{{- end -}}
{{- if .is.database -}}
{{- $_ := set $settings "DATABASE_POOL_SIZE" .profile.databasePoolSize -}}
{{- $_ := set $settings "DATABASE_PREPARE" (or $values.postgres.enabled $values.database.prepare) -}}
{{- $_ := set $settings "SECRETS_DIR" "/etc/undercroft/secrets" -}}
{{- end -}}
{{- if .is.models -}}
{{- $inside := eq (include "undercroft.modelsKind" .root) "image" | ternary (printf "/%s" (trimPrefix "/" $values.models.imagePath)) "" -}}
{{- $_ := set $settings "MODELS_DIR" (printf "/models%s" $inside) -}}
{{- end -}}
{{- if ne .is.sidecars "none" -}}
{{- $_ := set $settings "SIDECAR_DIR" "/var/lib/undercroft/sidecars" -}}
{{- end -}}
{{- if .is.local -}}
{{- $_ := set $settings "LOCAL_DIR" "/var/lib/undercroft/local" -}}
{{- end -}}
{{- if eq .component "ingest" -}}
{{- with .values.wheels.existingClaim }}{{ $_ := set $settings "WHEELS_DIR" "/wheels" }}{{ end -}}
{{- with .values.git.hosts }}{{ $_ := set $settings "GIT_HOSTS" (join "," .) }}{{ end -}}
{{- with .values.git.configSecret }}{{ $_ := set $settings "GIT_CONFIG_FILE" "/etc/undercroft/git/gitconfig" }}{{ end -}}
{{- with .values.pipeline }}{{ $_ := set $settings "PIPELINE_FILE" "/etc/undercroft/files/ingestion.yaml" }}{{ end -}}
{{- else if eq .component "search" -}}
{{- with .values.presets }}{{ $_ := set $settings "PRESETS_DIR" "/etc/undercroft/files" }}{{ end -}}
{{- end -}}
{{- range $name, $value := .values.config -}}
{{- $_ := set $settings (upper $name) $value -}}
{{- end -}}
{{- range $name, $value := $settings }}
UNDERCROFT_{{ $name }}: {{ include "undercroft.scalar" $value | quote }}
{{- end }}
{{- if include "undercroft.ownAuthorities" . }}
SSL_CERT_FILE: /etc/undercroft/ca/ca.crt
{{- end }}
{{- end -}}

{{- define "undercroft.files" -}}
{{- if eq .component "ingest" -}}
{{- with .values.pipeline }}
ingestion.yaml: {{ toYaml . }}
{{- end -}}
{{- else if eq .component "search" -}}
{{- with .values.presets }}
{{- toYaml . }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "undercroft.mounts" -}}
{{- $values := .root.Values -}}
- name: tmp
  mountPath: /tmp
{{- if .is.database }}
- name: page-tokens
  mountPath: /etc/undercroft/secrets
  readOnly: true
{{- include "undercroft.databaseMounts" (dict "root" .root "migrations" false) }}
{{- end }}
{{- if .is.models }}
- name: models
  mountPath: /models
  readOnly: true
{{- end }}
{{- if ne .is.sidecars "none" }}
- name: sidecars
  mountPath: /var/lib/undercroft/sidecars
  readOnly: {{ eq .is.sidecars "read" }}
{{- end }}
{{- if .is.local }}
- name: local
  mountPath: /var/lib/undercroft/local
{{- end }}
{{- if include "undercroft.ownAuthorities" . }}
- name: {{ $values.caBundle.append | ternary "ca" "own-ca" }}
  mountPath: /etc/undercroft/ca
  readOnly: true
{{- end }}
{{- if include "undercroft.files" . }}
- name: files
  mountPath: /etc/undercroft/files
  readOnly: true
{{- end }}
{{- if eq .component "ingest" }}
{{- if .values.git.configSecret }}
- name: git
  mountPath: /etc/undercroft/git
  readOnly: true
{{- end }}
{{- if .values.wheels.existingClaim }}
- name: wheels
  mountPath: /wheels
  readOnly: true
{{- end }}
{{- range .values.sources }}
- name: source-{{ .name }}
  mountPath: /sources/{{ .name }}
  {{- with .subPath }}
  subPath: {{ . }}
  {{- end }}
  readOnly: true
{{- end }}
{{- end }}
{{- end -}}

{{- define "undercroft.volumes" -}}
{{- $values := .root.Values -}}
- name: tmp
  emptyDir:
    sizeLimit: 512Mi
{{- if .is.database }}
- name: page-tokens
  secret:
    secretName: {{ include "undercroft.pageTokensSecret" .root }}
    items:
      - key: {{ $values.pageTokens.key }}
        path: page-token.key
{{- include "undercroft.databaseVolumes" (dict "root" .root "migrations" false) }}
{{- end }}
{{- if .is.models }}
{{ include "undercroft.modelsVolume" .root }}
{{- end }}
{{- if ne .is.sidecars "none" }}
- name: sidecars
  persistentVolumeClaim:
    claimName: {{ include "undercroft.sidecarsClaim" .root }}
{{- end }}
{{- if .is.local }}
- name: local
  emptyDir:
    sizeLimit: {{ default .profile.localSize .values.localSize }}
{{- end }}
{{- if include "undercroft.ownAuthorities" . }}
- name: own-ca
  {{- if $values.caBundle.configMap }}
  configMap:
    name: {{ $values.caBundle.configMap }}
  {{- else }}
  secret:
    secretName: {{ $values.caBundle.secret }}
  {{- end }}
    items:
      - key: {{ $values.caBundle.key }}
        path: ca.crt
{{- if $values.caBundle.append }}
- name: ca
  emptyDir:
    sizeLimit: 8Mi
{{- end }}
{{- end }}
{{- if include "undercroft.files" . }}
- name: files
  configMap:
    name: {{ .fullname }}-files
{{- end }}
{{- if eq .component "ingest" }}
{{- with .values.git.configSecret }}
- name: git
  secret:
    secretName: {{ . }}
    defaultMode: 0440
    items:
      - key: {{ $values.ingest.git.configKey }}
        path: gitconfig
{{- end }}
{{- with .values.wheels.existingClaim }}
- name: wheels
  persistentVolumeClaim:
    claimName: {{ . }}
    readOnly: true
{{- end }}
{{- range .values.sources }}
- name: source-{{ .name }}
  persistentVolumeClaim:
    claimName: {{ .existingClaim }}
    readOnly: true
{{- end }}
{{- end }}
{{- end -}}

{{- define "undercroft.initContainers" -}}
{{- $values := .root.Values -}}
{{- if and .is.models (eq (include "undercroft.modelsKind" .root) "copy") }}
- {{- include "undercroft.containerHead" (dict "root" .root "name" "models" "image" "models") | nindent 2 }}
  command: [python3, -c]
  args:
    - |
      import os, shutil, sys
      # Each by itself: the volume is root's, whose times and rights only root may set.
      for model in os.scandir(sys.argv[1]):
          if model.is_dir():
              copy = os.path.join(sys.argv[2], model.name)
              shutil.copytree(model.path, copy, dirs_exist_ok=True, copy_function=shutil.copyfile)
    - /{{ trimPrefix "/" $values.models.imagePath }}
    - /copied
  resources:
    {{- toYaml (include "undercroft.profile" .root | fromYaml).migrations.resources | nindent 4 }}
  volumeMounts:
    - name: models
      mountPath: /copied
{{- end }}
{{- if and (include "undercroft.ownAuthorities" .) $values.caBundle.append }}
- {{- include "undercroft.containerHead" (dict "root" .root "name" "authorities" "image" .component) | nindent 2 }}
  command: [python3, -c]
  args:
    - |
      import pathlib, sys
      texts = [pathlib.Path(path).read_text() for path in sys.argv[2:]]
      pathlib.Path(sys.argv[1]).write_text("\n".join(texts))
    - /ca/ca.crt
    - /etc/ssl/certs/ca-certificates.crt
    - /own/ca.crt
  resources:
    {{- toYaml (include "undercroft.profile" .root | fromYaml).migrations.resources | nindent 4 }}
  volumeMounts:
    - name: ca
      mountPath: /ca
    - name: own-ca
      mountPath: /own
      readOnly: true
    - name: tmp
      mountPath: /tmp
{{- end }}
{{- /* With a database of the release's own, nothing can be migrated before it is installed: the pods wait for it. */ -}}
{{- if and .is.database $values.postgres.enabled }}
- {{- include "undercroft.containerHead" (dict "root" .root "name" "schema" "image" .component) | nindent 2 }}
  command: [python3, -c]
  args:
    - |
      {{- .root.Files.Get "files/await.py" | trim | nindent 6 }}
    - {{ int $values.migrations.databaseWaitSeconds | quote }}
  env:
    {{- include "undercroft.databaseEnv" (dict "root" .root "migrations" false) | nindent 4 }}
  resources:
    {{- toYaml (include "undercroft.profile" .root | fromYaml).migrations.resources | nindent 4 }}
  volumeMounts:
    - name: tmp
      mountPath: /tmp
{{- end }}
{{- end -}}

{{- /* Only ingest speaks TLS with others than the database, which has an authority of its own. */ -}}
{{- define "undercroft.ownAuthorities" -}}
{{- if and (eq .component "ingest") (or .root.Values.caBundle.configMap .root.Values.caBundle.secret) -}}
true
{{- end -}}
{{- end -}}

{{- define "undercroft.pageTokensSecret" -}}
{{- default (printf "%s-page-tokens" (include "undercroft.fullname" .)) .Values.pageTokens.existingSecret -}}
{{- end -}}
