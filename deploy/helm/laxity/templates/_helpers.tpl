{{- define "laxity.labels" -}}
app.kubernetes.io/name: laxity
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "laxity.selector" -}}
app.kubernetes.io/name: laxity
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* Other names than the selector's: services and monitors of the nodes' pods do not mean it. */}}
{{- define "laxity.placement" -}}
app.kubernetes.io/name: laxity-placement
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "laxity.secret" -}}
{{ .Values.token.existingSecret | default "laxity-token" }}
{{- end }}

{{/* A tag such as 1234567 or 1.10 is a number to YAML and --set, and would be written as another one. */}}
{{- define "laxity.image" -}}
{{- if not (or (kindIs "string" .Values.image.tag) (kindIs "invalid" .Values.image.tag)) }}
{{- fail "image.tag: put it in quotes (--set-string)" }}
{{- end -}}
image: {{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end }}

{{/* The sandbox of a container: root on the node's processes, and nothing else. The argument is a
list: the values, and the capabilities beside BPF and PERFMON. */}}
{{- define "laxity.sandbox" -}}
{{- $values := index . 0 -}}
securityContext:
  # The files of other users' processes, and the engine's socket, are root's.
  runAsUser: 0
  readOnlyRootFilesystem: true
  # Kubernetes refuses false beside SYS_ADMIN.
  {{- if $values.linuxBefore610 }}
  allowPrivilegeEscalation: true
  {{- else }}
  allowPrivilegeEscalation: false
  {{- end }}
  # The engines' own profile keeps a container from looking into others, and from signalling them.
  appArmorProfile: {type: Unconfined}
  # The engine's own profile lets through what the capabilities below are for.
  seccompProfile: {type: RuntimeDefault}
  capabilities:
    drop: [ALL]
    add: {{ toJson (index . 1) }}
{{- end }}

{{/* For `kubectl exec … laxity`: the token, with which it may change something. */}}
{{- define "laxity.cli" -}}
- {name: LAXITY_TOKEN_FILE, value: /run/laxity-token/token}
{{- end }}

{{/* For `kubectl exec … laxity`: where exporter and actuator listen. The actuator's address is left to the
default where that is right: `laxity ps` fails if an actuator that is named does not answer, and else
shows the tasks all the same. */}}
{{- define "laxity.addresses" -}}
- {name: LAXITY_EXPORTER_URL, value: 'http://127.0.0.1:{{ .Values.exporter.port }}'}
{{- if and .Values.actuator.enabled (ne (int .Values.actuator.port) 9871) }}
- {name: LAXITY_ACTUATOR_URL, value: 'http://127.0.0.1:{{ .Values.actuator.port }}'}
{{- end }}
{{- end }}

{{/* "true" where the actuator may swap, or its flags say so. */}}
{{- define "laxity.swaps" -}}
{{- if or (contains "--swap" (join " " .Values.actuator.args)) (ne (.Values.actuator.swap | toString | replace "false" "off") "off") }}true{{ end }}
{{- end }}

{{- define "laxity.gpu" -}}
- {name: NVIDIA_VISIBLE_DEVICES, value: all}
- {name: NVIDIA_DRIVER_CAPABILITIES, value: {{ . | quote }}}
{{- end }}

{{/* "true" where the Prometheus operator's resources of a kind are wanted. The argument is a list: the
root, and the setting: true, false, or auto, which asks the cluster. */}}
{{- define "laxity.monitoring" -}}
{{- $has := (index . 0).Capabilities.APIVersions.Has "monitoring.coreos.com/v1" -}}
{{- if or (eq (toString (index . 1)) "true") (and (eq (toString (index . 1)) "auto") $has) }}true{{ end }}
{{- end }}
