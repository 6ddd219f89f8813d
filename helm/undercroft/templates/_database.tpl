{{- /* How the database is reached. */ -}}

{{- define "undercroft.postgresSecret" -}}
{{- default (printf "%s-postgres" (include "undercroft.fullname" .)) .Values.postgres.existingSecret -}}
{{- end -}}

{{- /* Environment of whoever has a connection: (dict "root" . "migrations" BOOL). */ -}}
{{- define "undercroft.databaseEnv" -}}
{{- $values := .root.Values -}}
{{- if $values.postgres.enabled -}}
- name: PGPASSWORD
  valueFrom:
    secretKeyRef:
      name: {{ include "undercroft.postgresSecret" .root }}
      key: password
- name: UNDERCROFT_DATABASE_URL
  value: postgresql://undercroft@{{ include "undercroft.fullname" .root }}-postgres:5432/undercroft
{{- else if and .migrations $values.migrations.existingSecret -}}
- name: UNDERCROFT_DATABASE_URL
  valueFrom:
    secretKeyRef:
      name: {{ $values.migrations.existingSecret }}
      key: {{ $values.migrations.uriKey }}
{{- else if $values.database.host -}}
- name: PGUSER
  valueFrom:
    secretKeyRef:
      name: {{ include "undercroft.databaseSecret" .root }}
      key: {{ $values.database.usernameKey }}
- name: PGPASSWORD
  valueFrom:
    secretKeyRef:
      name: {{ include "undercroft.databaseSecret" .root }}
      key: {{ $values.database.passwordKey }}
- name: UNDERCROFT_DATABASE_URL
  value: postgresql://{{ $values.database.host }}:{{ int $values.database.port }}/{{ $values.database.name }}
{{- else -}}
- name: UNDERCROFT_DATABASE_URL
  valueFrom:
    secretKeyRef:
      name: {{ include "undercroft.databaseSecret" .root }}
      key: {{ $values.database.uriKey }}
{{- end }}
{{- if not $values.postgres.enabled }}
{{- with $values.database.tls.mode }}
- name: PGSSLMODE
  value: {{ . }}
{{- end }}
{{- if $values.database.tls.caSecret }}
- name: PGSSLROOTCERT
  value: /etc/undercroft/database-ca/ca.crt
{{- end }}
{{- if include "undercroft.clientSecret" . }}
- name: PGSSLCERT
  value: /etc/undercroft/database-client/tls.crt
- name: PGSSLKEY
  value: /etc/undercroft/database-client/tls.key
{{- end }}
{{- end }}
{{- end -}}

{{- define "undercroft.databaseSecret" -}}
{{- required "The database is not named: set database.existingSecret to the Secret with its connection, or for a trial postgres.enabled=true." .Values.database.existingSecret -}}
{{- end -}}

{{- /* Secret with the client certificate of whoever connects: (dict "root" . "migrations" BOOL). */ -}}
{{- define "undercroft.clientSecret" -}}
{{- $values := .root.Values -}}
{{- if and .migrations $values.migrations.existingSecret -}}
{{- $values.migrations.clientSecret -}}
{{- else -}}
{{- $values.database.tls.clientSecret -}}
{{- end -}}
{{- end -}}

{{- define "undercroft.databaseMounts" -}}
{{- if not .root.Values.postgres.enabled }}
{{- if .root.Values.database.tls.caSecret }}
- name: database-ca
  mountPath: /etc/undercroft/database-ca
  readOnly: true
{{- end }}
{{- if include "undercroft.clientSecret" . }}
- name: database-client
  mountPath: /etc/undercroft/database-client
  readOnly: true
{{- end }}
{{- end }}
{{- end -}}

{{- /* libpq refuses a private key that others may read: these belong to root and to the pod's group. */ -}}
{{- define "undercroft.databaseVolumes" -}}
{{- if not .root.Values.postgres.enabled }}
{{- $client := include "undercroft.clientSecret" . }}
{{- with .root.Values.database.tls }}
{{- if .caSecret }}
- name: database-ca
  secret:
    secretName: {{ .caSecret }}
    items:
      - key: {{ .caKey }}
        path: ca.crt
{{- end }}
{{- if $client }}
- name: database-client
  secret:
    secretName: {{ $client }}
    defaultMode: 0440
    items:
      - key: {{ .clientCertificateKey }}
        path: tls.crt
      - key: {{ .clientKeyKey }}
        path: tls.key
{{- end }}
{{- end }}
{{- end }}
{{- end -}}
