{{- /* The objects of one service: (dict "root" . "component" NAME). */ -}}

{{- define "undercroft.service" -}}
{{- $root := .root -}}
{{- $name := .component -}}
{{- $values := index $root.Values $name -}}
{{- $is := index (include "undercroft.components" $root | fromYaml) $name -}}
{{- $profile := index (include "undercroft.profile" $root | fromYaml) $name -}}
{{- $fullname := printf "%s-%s" (include "undercroft.fullname" $root) $name -}}
{{- $context := dict "root" $root "component" $name "values" $values "is" $is "profile" $profile "fullname" $fullname -}}
{{- $mounts := dict "root" $root "sidecars" (ne $is.sidecars "none") "models" $is.models "affinity" $values.affinity -}}
{{- $onOneNode := include "undercroft.volumeLabels" $mounts | fromYaml -}}
{{- $config := include "undercroft.config" $context -}}
{{- $files := include "undercroft.files" $context -}}
{{- $replicas := int (default $profile.replicas $values.replicas) -}}
apiVersion: v1
kind: ConfigMap
{{ include "undercroft.metadata" (dict "root" $root "component" $name "name" $fullname) }}
data:
  {{- $config | nindent 2 }}
{{- with $files }}
---
apiVersion: v1
kind: ConfigMap
{{ include "undercroft.metadata" (dict "root" $root "component" $name "name" (printf "%s-files" $fullname)) }}
data:
  {{- . | nindent 2 }}
{{- end }}
---
apiVersion: apps/v1
kind: Deployment
{{ include "undercroft.metadata" (dict "root" $root "component" $name "name" $fullname) }}
spec:
  {{- if not $values.autoscaling.enabled }}
  replicas: {{ $replicas }}
  {{- end }}
  revisionHistoryLimit: 3
  # A new pod serves before an old one ends, also on the one node of a ReadWriteOnce volume.
  strategy:
    type: RollingUpdate
    rollingUpdate:
      maxSurge: 1
      maxUnavailable: 0
  selector:
    matchLabels:
      {{- include "undercroft.selectorLabels" $context | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "undercroft.labels" $context | nindent 8 }}
        {{- with $onOneNode }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        {{- with $values.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      annotations:
        checksum/config: {{ print $config $files | sha256sum }}
        {{- with merge (dict) $values.podAnnotations $root.Values.commonAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      {{- include "undercroft.podHead" (dict "root" $root "account" (include "undercroft.serviceAccountName" $root)) | nindent 6 }}
      # Longer than draining and the grace for running calls together.
      terminationGracePeriodSeconds: {{ add (int $root.Values.drainSeconds) (int $root.Values.shutdownGraceSeconds) 10 }}
      {{- include "undercroft.placement" $values | nindent 6 }}
      {{- include "undercroft.affinity" $mounts | nindent 6 }}
      {{- $spread := $values.topologySpreadConstraints }}
      {{- if and (not $spread) (not $onOneNode) }}
      topologySpreadConstraints:
        {{- range $key := list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
        - maxSkew: 1
          topologyKey: {{ $key }}
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels:
              {{- include "undercroft.selectorLabels" $context | nindent 14 }}
        {{- end }}
      {{- else if $spread }}
      topologySpreadConstraints:
        {{- toYaml $spread | nindent 8 }}
      {{- end }}
      {{- with include "undercroft.initContainers" $context | trim }}
      initContainers:
        {{- . | nindent 8 }}
      {{- end }}
      containers:
        - {{- include "undercroft.containerHead" (dict "root" $root "name" $name "image" $name) | nindent 10 }}
          {{- with $values.command }}
          command:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          envFrom:
            - configMapRef:
                name: {{ $fullname }}
            {{- with $values.extraEnvFrom }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          {{- $env := ternary (include "undercroft.databaseEnv" (dict "root" $root "migrations" false)) "" $is.database }}
          {{- if or $env $values.extraEnv }}
          env:
            {{- with $env }}
            {{- . | nindent 12 }}
            {{- end }}
            {{- with $values.extraEnv }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          {{- end }}
          ports:
            - name: grpc
              containerPort: {{ $is.port }}
              protocol: TCP
            - name: metrics
              containerPort: {{ $is.metricsPort }}
              protocol: TCP
          {{- $probe := include "undercroft.probe" (dict "root" $root "port" $is.port) }}
          {{- /* A command costs a fifth of a second of a processor each time: it is asked less often, and gets longer. */}}
          {{- $cheap := eq (include "undercroft.probeMode" $root) "grpc" }}
          startupProbe:
            {{- $probe | nindent 12 }}
            periodSeconds: 5
            timeoutSeconds: {{ $cheap | ternary 10 15 }}
            failureThreshold: {{ max 1 (div (int $root.Values.probes.startupSeconds) 5) }}
          readinessProbe:
            {{- $probe | nindent 12 }}
            periodSeconds: {{ $cheap | ternary 10 20 }}
            timeoutSeconds: {{ $cheap | ternary 10 15 }}
            failureThreshold: 3
          # Slower than readiness, and never before the service has started: a busy service must not be killed.
          livenessProbe:
            {{- $probe | nindent 12 }}
            periodSeconds: {{ $cheap | ternary 30 60 }}
            timeoutSeconds: {{ $cheap | ternary 20 30 }}
            failureThreshold: 4
          resources:
            {{- toYaml (default $profile.resources $values.resources) | nindent 12 }}
          volumeMounts:
            {{- include "undercroft.mounts" $context | trim | nindent 12 }}
            {{- with $values.extraVolumeMounts }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
      volumes:
        {{- include "undercroft.volumes" $context | trim | nindent 8 }}
        {{- with $values.extraVolumes }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
---
# For callers that do not balance themselves.
apiVersion: v1
kind: Service
{{ include "undercroft.metadata" (dict "root" $root "component" $name "name" $fullname "annotations" $values.service.annotations) }}
spec:
  type: {{ $values.service.type }}
  selector:
    {{- include "undercroft.selectorLabels" $context | nindent 4 }}
  ports:
    - name: grpc
      port: {{ $is.port }}
      targetPort: grpc
      protocol: TCP
      appProtocol: grpc
---
# The addresses of all pods: a gRPC channel spreads its calls over them, where a ClusterIP pins it to one.
apiVersion: v1
kind: Service
{{ include "undercroft.metadata" (dict "root" $root "component" $name "name" (printf "%s-headless" $fullname)) }}
spec:
  type: ClusterIP
  clusterIP: None
  selector:
    {{- include "undercroft.selectorLabels" $context | nindent 4 }}
  ports:
    - name: grpc
      port: {{ $is.port }}
      targetPort: grpc
      protocol: TCP
      appProtocol: grpc
    - name: metrics
      port: {{ $is.metricsPort }}
      targetPort: metrics
      protocol: TCP
{{- if and $values.podDisruptionBudget.enabled (not $onOneNode) }}
---
apiVersion: policy/{{ semverCompare ">=1.21" (include "undercroft.kubeVersion" $root) | ternary "v1" "v1beta1" }}
kind: PodDisruptionBudget
{{ include "undercroft.metadata" (dict "root" $root "component" $name "name" $fullname) }}
spec:
  maxUnavailable: {{ include "undercroft.scalar" $values.podDisruptionBudget.maxUnavailable }}
  selector:
    matchLabels:
      {{- include "undercroft.selectorLabels" $context | nindent 6 }}
{{- end }}
{{- if $values.autoscaling.enabled }}
---
apiVersion: autoscaling/{{ semverCompare ">=1.23" (include "undercroft.kubeVersion" $root) | ternary "v2" "v2beta2" }}
kind: HorizontalPodAutoscaler
{{ include "undercroft.metadata" (dict "root" $root "component" $name "name" $fullname) }}
spec:
  scaleTargetRef:
    apiVersion: apps/v1
    kind: Deployment
    name: {{ $fullname }}
  minReplicas: {{ int $values.autoscaling.minReplicas }}
  maxReplicas: {{ int $values.autoscaling.maxReplicas }}
  metrics:
    - type: Resource
      resource:
        name: cpu
        target:
          type: Utilization
          averageUtilization: {{ int $values.autoscaling.targetCPU }}
  behavior:
    # Loading models and copying indexes costs more than a pod too many for some minutes.
    scaleDown:
      stabilizationWindowSeconds: 600
{{- end }}
{{- if $root.Values.monitoring.serviceMonitor.enabled }}
---
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata:
  name: {{ $fullname }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "undercroft.labels" $context | nindent 4 }}
    {{- with $root.Values.monitoring.serviceMonitor.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  endpoints:
    - port: metrics
      interval: {{ $root.Values.monitoring.serviceMonitor.interval }}
  selector:
    matchLabels:
      {{- include "undercroft.selectorLabels" $context | nindent 6 }}
{{- end }}
{{- end -}}
